"""Pods and nodes of the API server: listed once, then watched for as long as this process runs."""

from __future__ import annotations

import logging
import os
import threading
from typing import TYPE_CHECKING, Any

from ...kube.list_watch import ListWatch
from ..cluster.objects import is_finished, node_of, pod_of

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcuda_oci.system.settings_file import Config

    from ...kube.api import KubeApi
    from ..cluster.cluster import Cluster
    from ..quota.quota_limits import QuotaPlace

    Object = dict[str, Any]

# A finished pod holds no GPU; the server then reports its end as it reports a deleted pod.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
BOUND = "spec.nodeName!=," + UNFINISHED
_PAGE = 500

_log = logging.getLogger(__name__)


class Follower(ListWatch):
    """One kind of object. key: of its metadata, which `drop` and `keep` get.

    put, drop: take an object that is there, or gone. keep: takes the keys of a whole list, and when
    it was begun (monotonic). synced: set once the first list is whole.
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
        self.synced = threading.Event()

    def start(self) -> None:
        """Follow in a thread that ends with the process, and the process with it."""

        def run() -> None:
            try:
                self.follow(self._api)
            except BaseException:
                _log.exception("%s: not followed any more", self.path)
                os._exit(1)

        threading.Thread(target=run, name=self.path, daemon=True).start()

    def catch_up(self, **query: str) -> None:
        """Put what is there now, beside the watch, which may be behind or ahead: for what neither
        undoes of the other. query: instead of its own. Raises ApiError."""
        for items, _ in self.pages(self._api, **query):
            for each in items:
                self.changed(each)

    def begin_list(self) -> None:
        self._found = set()

    def listed(self, item: Object) -> None:
        self.changed(item)
        self._found.add(str(item["metadata"][self._key]))

    def whole(self, began: float) -> None:
        self._keep(self._found, began)
        self.synced.set()

    def changed(self, item: Object) -> None:
        self._put(item)

    def gone(self, item: Object) -> None:
        self._drop(str(item["metadata"][self._key]))


def followers(
    api: KubeApi, cluster: Cluster, settings: Config, place: QuotaPlace
) -> list[Follower]:
    """Of nodes and pods, into `cluster`."""

    def put_pod(pod: Object) -> None:
        known = cluster.pods.get(str(pod["metadata"].get("uid")))
        if known and known.node and not is_finished(pod):
            return  # most events: what it does, while what it has stays
        facts = pod_of(pod, settings)
        if facts:
            cluster.put_pod(facts)

    def keep_nodes(names: set[str], since: float) -> None:
        cluster.keep_nodes(names)

    def put_node(node: Object) -> None:
        cluster.put_node(node_of(node, place))

    return [
        Follower(api, "/api/v1/nodes", "name", put_node, cluster.drop_node, keep_nodes),
        Follower(
            api,
            "/api/v1/pods",
            "uid",
            put_pod,
            cluster.end_pod,
            cluster.keep_pods,
            fieldSelector=UNFINISHED,
        ),
    ]
