"""Follow the API server's pods and nodes: list once, then watch while this process runs."""

from __future__ import annotations

import logging
import os
import threading
from collections.abc import Callable
from typing import Any

from vcuda_hook.claims.dra_names import DRIVER
from vcuda_oci.system.settings_file import Config

from ...kube import agent_lease
from ...kube.api import KubeApi, Object
from ...kube.list_watch import ListWatch
from ..cluster.claims import Claims, Kept
from ..cluster.cluster import Cluster
from ..cluster.objects import is_finished, node_of, pod_of
from ..quota.quota_limits import QuotaPlace
from .agents import Agents

# A finished pod holds no GPU; with this selector the server reports its end as a deletion.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
BOUND = "spec.nodeName!=," + UNFINISHED
_PAGE = 500
_DRA = "/apis/resource.k8s.io/v1"

_log = logging.getLogger(__name__)


class Follower(ListWatch):
    """One kind of object. key: the metadata field that `drop` and `keep` get.

    on_failure: called when the API server did not answer.
    put, drop: take an existing or a removed object. keep: takes the keys of a complete list, and
    when the list began (monotonic). synced: set once the first list is complete.
    """

    together_seconds = 0.02

    def __init__(
        self,
        api: KubeApi,
        path: str,
        key: str,
        put: Callable[[Object], None],
        drop: Callable[[str], None],
        keep: Callable[[set[str], float], None],
        **query: str,
    ) -> None:
        super().__init__(path, path, _PAGE, query)
        self._api, self._key = api, key
        self._put, self._drop, self._keep = put, drop, keep
        self._found: set[str] = set()
        self._lock = threading.Lock()
        self.synced = threading.Event()
        self.on_failure: Callable[[], object] = lambda: None

    def failed(self) -> None:
        self.on_failure()

    def start(self) -> None:
        """Follow in a daemon thread; the process exits if the thread fails."""

        def run() -> None:
            try:
                self.follow(self._api)
            except BaseException:
                _log.exception("%s: not followed any more", self.path)
                os._exit(1)

        threading.Thread(target=run, name=self.path, daemon=True).start()

    def catch_up(self, **query: str) -> None:
        """Read the present objects that the watch, which may be behind, has not brought yet.

        query: instead of its own. Raises ApiError.
        """
        for items, _ in self.pages(self._api, **query):
            for each in items:
                with self._lock:
                    if self.is_newer(each):
                        self._put(each)

    def begin_list(self) -> None:
        self._found = set()

    def listed(self, item: Object) -> None:
        self.changed(item)
        self._found.add(str(item["metadata"][self._key]))

    def listed_all(self, began: float) -> None:
        self._keep(self._found, began)
        self.synced.set()

    def changed(self, item: Object) -> None:
        with self._lock:
            self._put(item)

    def removed(self, item: Object) -> None:
        with self._lock:
            self._drop(str(item["metadata"][self._key]))


def followers(
    api: KubeApi, cluster: Cluster, settings: Config, place: QuotaPlace, agents: Agents
) -> list[Follower]:
    """Followers of nodes and pods, and of the agents' Leases, that update `cluster`."""

    def put_pod(pod: Object) -> None:
        if agents.put_pod(pod):
            return
        known = cluster.pods.get(str(pod["metadata"].get("uid")))
        if known and known.node and not is_finished(pod):
            return  # most events: the pod's status changes, its request does not
        facts = pod_of(pod, settings)
        if facts:
            cluster.put_pod(facts)

    def drop_pod(uid: str) -> None:
        agents.drop_pod(uid)
        cluster.end_pod(uid)

    def keep_pods(uids: set[str], since: float) -> None:
        agents.keep_pods(uids)
        cluster.keep_pods(uids, since)

    def put_node(node: Object) -> None:
        agents.put_node(node_of(node, place))

    leases = Follower(
        api,
        agent_lease.folder(agents.namespace),
        "name",
        agents.put_lease,
        agents.drop_lease,
        agents.keep_leases,
        labelSelector=agent_lease.SELECTOR,
    )
    leases.on_failure = agents.missed
    return [
        Follower(api, "/api/v1/nodes", "name", put_node, agents.drop_node, agents.keep_nodes),
        Follower(
            api,
            "/api/v1/pods",
            "uid",
            put_pod,
            drop_pod,
            keep_pods,
            fieldSelector=UNFINISHED,
        ),
        *([leases] if agents.namespace else []),
    ]


def claim_followers(api: KubeApi, claims: Claims) -> list[Follower]:
    """Followers of ResourceClaims and of the driver's ResourceSlices, that update `claims`."""

    def follower(kind: str, kept: Kept[Any], **query: str) -> Follower:
        return Follower(api, f"{_DRA}/{kind}", "uid", kept.put, kept.drop, kept.keep, **query)

    return [
        follower("resourceslices", claims.slices, fieldSelector=f"spec.driver={DRIVER}"),
        follower("resourceclaims", claims.claims),
    ]
