"""Write the placement decisions of this node's pods to files; in threads, send node metadata and
Events.

It is a process of its own, because the API may hang and its client takes memory that only clusters
need. It lists once, then watches, and lists again only if the API has forgotten the watch's
version. While the API is unavailable the files stay, and it retries every two seconds: containers
of unknown pods wait. A runtime wrapper that misses a pod has it looked up (pod_lookup).
"""

from __future__ import annotations

import logging
import sys
import threading
from typing import Any

from vcuda_oci.container.identity import pod_key
from vcuda_oci.ledger import events
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError, with_id
from vcuda_oci.system.settings_file import Config

from ...kube import kube_client
from ...kube.connect import connect
from ...kube.list_watch import ListWatch
from ..kubelet import resources
from . import node_metadata, pod_events, pod_lookup, unclaimed
from .decision_folder import DecisionFolder
from .pod_decision import PodDecision, of_pod

_PAGE = 100
_MOST_REPORTED = 100  # the containers of one pod
_NO_DECISION = "decision"

prepare = kube_client.load  # called before the fork

_log = logging.getLogger(__name__)


def main(settings: Config, node: str, kubeconfig: str, namespace: str = "") -> None:
    """Run until the agent ends. namespace: of the agent's Lease, or "".

    Prints "known" after each complete list.
    """
    state_dir = settings.state_dir
    kube_client.load()  # now: two threads would do it at once
    try:
        watch = PodWatch(DecisionFolder(state_dir), settings, node)
        for task, arguments in (
            (node_metadata.run, (kubeconfig, node, sys.stdin.fileno(), namespace)),
            (pod_events.run, (kubeconfig, state_dir, node)),
            (pod_lookup.run, (kubeconfig, state_dir, node, watch.add)),
        ):
            threading.Thread(target=task, args=arguments, daemon=True).start()
        watch.follow(connect(kubeconfig, names.AGENT_PROGRAM))
    except OSError as error:
        sys.exit(f"{names.AGENT_PROGRAM}: {error}")


class PodWatch(ListWatch):
    """Keeps `folder` up to date with the pods of `node` that request a resource of the settings."""

    def __init__(self, folder: DecisionFolder, settings: Config, node: str) -> None:
        self._folder, self._state_dir, self._node = folder, settings.state_dir, node
        # With DRA, claims say what a pod gets, also where it asks for a resource.
        offered = {} if settings.by_dra else resources.offered(settings)
        self._resources = frozenset(offered.values())
        self._gpu_resource = offered.get(resources.GPU, "")
        query = {"fieldSelector": f"spec.nodeName={node}"}
        super().__init__(f"pods of node {node}", "/api/v1/pods", _PAGE, query)
        self._pods: list[dict[str, Any]] = []
        self._uids: dict[str, str] = {}  # UIDs as the engine has them, by the API's
        self._complained: set[str] = set()
        self._lock = threading.Lock()  # both the watch and single look-ups add pods

    def add(self, pod: Any) -> None:
        """Add a pod from a single look-up, unless the watch has brought it, or its end, already."""
        with self._lock:
            if self.is_newer(pod):
                self._see(_essence(pod))

    def begin_list(self) -> None:
        self._pods = []

    def listed(self, item: dict[str, Any]) -> None:
        self._pods.append(_essence(item))

    def listed_all(self, began: float) -> None:
        with self._lock:
            self._uids = {}
            # Oldest first: if two pods claim to mirror one static pod, the kubelet's is the older.
            for pod in sorted(self._pods, key=_created):
                self._see(pod)
            self._folder.retain_only(self._uids.values())
        self._pods = []
        print("known", flush=True)

    def changed(self, item: dict[str, Any]) -> None:
        with self._lock:
            self._see(item)

    def removed(self, item: dict[str, Any]) -> None:
        with self._lock:
            self._forget(item)

    def _see(self, pod: dict[str, Any]) -> None:
        found = of_pod(pod, self._node, self._resources, self._gpu_resource)
        if found is None:
            self._forget(pod)
            return
        api_uid = str(pod["metadata"].get("uid"))
        holders = [api for api, uid in self._uids.items() if uid == found.uid]
        complaint = found.complaint
        self._report_unclaimed(pod, found)
        if holders in ([], [api_uid]):
            self._uids[api_uid] = found.uid
            kept = self._folder.get(found.uid)
            if kept is None:
                self._record_decided(found)
            self._folder.put(found.uid, _as_bound(kept, found.decision))
        else:
            complaint = "mirrors a static pod that another pod mirrors"
        # Report it once, even if the annotation is rewritten.
        if complaint and api_uid not in self._complained:
            where = f"pod {found.name} ({found.uid})"
            hint = "it decides nothing here: delete the pod, and it is scheduled anew"
            text = str(VcudaError(complaint, where, hint))
            for container in found.containers[:_MOST_REPORTED]:
                _log.warning("%s", with_id(text, pod_key(found.uid, container)))
                self._record(names.AGENT_PROGRAM, _NO_DECISION, found, container, text)
            self._complained.add(api_uid)

    def _report_unclaimed(self, pod: dict[str, Any], found: PodDecision) -> None:
        for container in unclaimed.containers(pod, found, self._state_dir):
            key = f"{pod['metadata'].get('uid')}/{container}"
            if key not in self._complained:
                self._complained.add(key)
                text = str(VcudaError(unclaimed.WHAT, f"pod {found.name}", unclaimed.HINT))
                _log.warning("%s", with_id(text, pod_key(found.uid, container)))
                self._record(names.AGENT_PROGRAM, events.UNCLAIMED, found, container, text)

    def _record_decided(self, found: PodDecision) -> None:
        decided = list(found.decision.containers.items())
        for container, shares in decided[:_MOST_REPORTED]:
            text = "; ".join(share.amounts for share in shares)
            self._record(names.EXTENDER_PROGRAM, events.DECIDED, found, container, text)

    def _record(
        self, program: str, kind: str, found: PodDecision, container: str, text: str
    ) -> None:
        id, pod = pod_key(found.uid, container), f"{found.name}/{container}"
        events.record(self._state_dir, program, kind, id, text, pod=pod)

    def _forget(self, pod: dict[str, Any]) -> None:
        api_uid = str(pod["metadata"].get("uid"))
        self._complained = {key for key in self._complained if key.partition("/")[0] != api_uid}
        uid = self._uids.pop(api_uid, "")
        if uid:
            self._folder.remove(uid)


def _as_bound(kept: Decision | None, found: Decision) -> Decision:
    """Return the decision that was seen first, which came with the binding.

    The pod's author can rewrite the annotations afterwards. The scheduler does not follow that, so
    the container would take a GPU that the scheduler gives to another pod. Only the amounts and
    the owner are taken from `found`: they come from fields that do not change.
    """
    if kept is None:
        return found
    return Decision(kept.containers, kept.words, kept.init, found.amounts, found.owner)


def _created(pod: dict[str, Any]) -> str:
    return str(pod["metadata"].get("creationTimestamp"))


def _essence(pod: Any) -> dict[str, Any]:
    """Return the fields of a pod that are read; the rest has megabytes on a full node."""
    return {
        "metadata": {
            key: pod["metadata"].get(key)
            for key in (
                "name", "namespace", "uid", "annotations", "creationTimestamp",
                "deletionTimestamp", "ownerReferences", "labels",
            )
        },
        "spec": pod.get("spec"),
        "status": {
            key: (pod.get("status") or {}).get(key) for key in ("phase", *unclaimed.STATUSES)
        },
    }  # fmt: skip
