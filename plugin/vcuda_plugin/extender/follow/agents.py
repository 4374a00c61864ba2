"""Which nodes' agents are away. The kubelet of such a node rejects pods with a share.

A kubelet reports an agent's end with its next status, up to 10 s later. The state of the agent's
pod shows that end within a second or two; its Lease shows an agent that hangs. A node without such
a pod is not judged: its agent may be a service of the host, which renews no Lease, and the Lease of
an earlier pod may still exist.
"""

from __future__ import annotations

import dataclasses
import logging
import threading
import time
from collections.abc import Callable, Collection

from ...kube import agent_lease
from ...kube.api import Object
from ..cluster.cluster import Cluster
from ..cluster.objects import NodeFacts

_CHECK_SECONDS = 1.0
NOT_READY = "the node agent is away: its pod is not ready"
OLD = f"the node agent is away: it has not renewed its Lease for {agent_lease.LEASE_SECONDS:g} s"

_log = logging.getLogger(__name__)


class Agents:
    """Passes nodes on to `cluster`, without GPUs while the node's agent is away.

    namespace: of the agents' pods and Leases; "": none is known. now: a monotonic clock.
    """

    def __init__(
        self, cluster: Cluster, namespace: str, now: Callable[[], float] = time.monotonic
    ) -> None:
        self._cluster, self.namespace, self._now = cluster, namespace, now
        self._nodes: dict[str, NodeFacts] = {}
        self._pods: dict[str, str] = {}  # node, by UID
        self._ready: dict[str, dict[str, bool]] = {}  # readiness by UID, of each node
        self._renewed: dict[str, float] = {}  # when a renewal was seen, the oldest first
        self._versions: dict[str, str] = {}
        self._old: set[str] = set()

    def put_node(self, facts: NodeFacts) -> None:
        with self._cluster.lock:
            self._nodes[facts.name] = facts
            self._apply(facts.name)

    def drop_node(self, name: str) -> None:
        with self._cluster.lock:
            self._nodes.pop(name, None)
            self._cluster.drop_node(name)

    def keep_nodes(self, names: Collection[str], began: float) -> None:
        with self._cluster.lock:
            self._nodes = {name: self._nodes[name] for name in names if name in self._nodes}
            self._cluster.keep_nodes(names)

    def put_pod(self, pod: Object) -> bool:
        """Take an agent's pod; return whether it is one."""
        metadata, spec = pod["metadata"], pod.get("spec") or {}
        key, value = agent_lease.LABEL
        if not (
            self.namespace
            and metadata.get("namespace") == self.namespace
            and (metadata.get("labels") or {}).get(key) == value
        ):
            return False
        node = str(spec.get("nodeName") or "")
        # Only the kubelet writes these. The pod's own condition is also false while the API server
        # does not hear of the node.
        statuses = (pod.get("status") or {}).get("containerStatuses") or ()
        ready = bool(statuses) and all(each.get("ready") is True for each in statuses)
        with self._cluster.lock:
            self._pods[str(metadata["uid"])] = node
            self._ready.setdefault(node, {})[str(metadata["uid"])] = ready
            self._apply(node)
        return True

    def drop_pod(self, uid: str) -> None:
        with self._cluster.lock:
            node = self._pods.pop(uid, "")
            if node:
                self._ready[node].pop(uid)
                self._apply(node)

    def keep_pods(self, uids: Collection[str]) -> None:
        with self._cluster.lock:
            for uid in [uid for uid in self._pods if uid not in uids]:
                self.drop_pod(uid)

    def put_lease(self, lease: Object) -> None:
        name, version = (str(lease["metadata"].get(key)) for key in ("name", "resourceVersion"))
        with self._cluster.lock:
            if self._versions.get(name) == version:
                return  # listed again, and not renewed since
            self._versions[name] = version
            self._renewed.pop(name, None)
            self._renewed[name] = self._now()
            if name in self._old:
                self._old.discard(name)
                self._apply(name)

    def drop_lease(self, name: str) -> None:
        with self._cluster.lock:
            self._renewed.pop(name, None)
            self._versions.pop(name, None)
            self._old.discard(name)
            self._apply(name)

    def keep_leases(self, names: Collection[str], began: float) -> None:
        with self._cluster.lock:
            for name in [name for name in self._versions if name not in names]:
                self.drop_lease(name)

    def missed(self) -> None:
        """Note that renewals may have been missed: the API server did not answer."""
        with self._cluster.lock:
            now = self._now()
            self._renewed = dict.fromkeys(self._renewed, now)

    def start(self) -> None:
        """Check the age of the Leases in a daemon thread."""

        def run() -> None:
            while True:
                time.sleep(_CHECK_SECONDS)
                self.check()

        threading.Thread(target=run, name="agents", daemon=True).start()

    def check(self) -> None:
        """Find the Leases that have become too old."""
        with self._cluster.lock:
            oldest = self._now() - agent_lease.LEASE_SECONDS
            for name, seen in list(self._renewed.items()):
                if seen >= oldest:
                    break
                del self._renewed[name]
                self._old.add(name)
                self._apply(name)

    def _apply(self, name: str) -> None:
        facts = self._nodes.get(name)
        if facts is None:
            return
        ready, why = self._ready.get(name), ""
        if ready:
            why = NOT_READY if not any(ready.values()) else OLD if name in self._old else ""
        if why and facts.usable:
            facts = dataclasses.replace(facts, usable=(), why=why, source=facts.source + why)
        known = self._cluster.nodes.get(name)
        if why and (known is None or known.facts != facts):
            _log.info("node %s: %s", name, why)
        self._cluster.put_node(facts)
