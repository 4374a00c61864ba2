"""Pods and nodes of the API server: listed once, then watched for as long as this process runs."""

from __future__ import annotations

import logging
import os
import random
import threading
import time
from typing import TYPE_CHECKING, Any

from ..cluster.objects import is_finished, node_of, pod_of
from .api import Unreachable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from vcuda_oci.system.settings_file import Config

    from ..cluster.cluster import Cluster
    from ..quota.quota_limits import QuotaPlace
    from .api import Api

    Object = dict[str, Any]

# What is over holds no GPU; the server then tells its end as it tells that a pod is gone.
UNFINISHED = "status.phase!=Succeeded,status.phase!=Failed"
BOUND = "spec.nodeName!=," + UNFINISHED
_PAGE, _PAGE_SECONDS = "500", 60.0
_WATCH_SECONDS = 300
_SILENCE_SECONDS = 30.0
_MOST_PAUSE_SECONDS = 30.0

_log = logging.getLogger(__name__)


class _Gone(Exception):
    """The server remembers less than we ask for: list anew."""


class Follower:
    """One kind of object. put, drop: what to do with one. keep: what to do when a whole list is
    there, with the `key` of each in it and when it was begun (monotonic).

    synced: set once the first list is whole.
    """

    def __init__(
        self,
        api: Api,
        path: str,
        key: str,
        put: Callable[[Object], None],
        drop: Callable[[str], None],
        keep: Callable[[set[str], float], None],
        **query: str,
    ) -> None:
        self._api, self._path, self._key, self._query = api, path, key, query
        self._put, self._drop, self._keep = put, drop, keep
        self._version = ""
        self.synced = threading.Event()
        self.heard = time.monotonic()

    def start(self) -> None:
        """In a thread that ends with the process, and the process with it: never unnoticed."""

        def run() -> None:
            try:
                self.follow()
            except BaseException:
                _log.exception("%s: not followed any more", self._path)
                os._exit(1)

        threading.Thread(target=run, name=self._path, daemon=True).start()

    def follow(self) -> None:
        failures = 0
        while True:
            began = time.monotonic()
            try:
                if not self._version:
                    self._list()
                self._watch()
                failures = 0
            except _Gone:
                _log.info("%s: listing anew", self._path)
                self._version = ""
            except Unreachable as error:
                failures += 1
                _log.warning("%s", error)
            # Never as fast as the server lets it, and not all at once after it was away.
            if failures or time.monotonic() - began < 1:
                most = min(_MOST_PAUSE_SECONDS, 0.25 * 2 ** min(failures, 10))
                time.sleep(random.uniform(most / 2, most))  # noqa: S311

    def catch_up(self, **query: str) -> None:
        """Put what is there now, beside the watch, which may be behind or ahead: for what neither
        undoes of the other. query: instead of its own. Raises Unreachable."""
        try:
            for page in self._pages(**query):
                for each in page.get("items") or []:
                    self._put(each)
        except _Gone:
            raise Unreachable(f"list {self._path}: 410") from None

    def _list(self) -> None:
        began, found, page = time.monotonic(), set(), dict[str, Any]()
        for page in self._pages():
            for each in page.get("items") or []:
                self._put(each)
                found.add(str(each["metadata"][self._key]))
        self._keep(found, began)
        self._version = str((page.get("metadata") or {}).get("resourceVersion", ""))
        self.heard = time.monotonic()
        self.synced.set()

    def _pages(self, **changes: str) -> Iterator[Object]:
        """Of the objects as they are now: not of a cache, for no version is asked for."""
        onward = ""
        while True:
            more = {"continue": onward} if onward else {}
            query = {"limit": _PAGE, **self._query, **changes, **more}
            status, page = self._api.call("GET", self._path, None, _PAGE_SECONDS, **query)
            if status == 410 and onward:
                raise _Gone
            if status != 200 or not isinstance(page, dict):
                raise Unreachable(f"list {self._path}: {status} {_message(page)}")
            yield page
            onward = (page.get("metadata") or {}).get("continue") or ""
            if not onward:
                return

    def _watch(self) -> None:
        """Until the server ends it, which it does after a while."""
        seconds = random.randint(_WATCH_SECONDS, 2 * _WATCH_SECONDS)  # noqa: S311
        events = self._api.lines(
            self._path,
            seconds + _SILENCE_SECONDS,
            watch="true",
            allowWatchBookmarks="true",
            resourceVersion=self._version,
            timeoutSeconds=str(seconds),
            **self._query,
        )
        for event in events:
            self.heard = time.monotonic()
            kind, told = event.get("type"), event.get("object") or {}
            if kind == "ERROR":
                if told.get("code") == 410:
                    raise _Gone
                raise Unreachable(f"watch {self._path}: {told.get('code')} {_message(told)}")
            if kind in ("ADDED", "MODIFIED"):
                self._put(told)
            elif kind == "DELETED":
                self._drop(str(told["metadata"][self._key]))
            self._version = told.get("metadata", {}).get("resourceVersion") or self._version


def followers(api: Api, cluster: Cluster, settings: Config, place: QuotaPlace) -> list[Follower]:
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


def _message(status: Any) -> str:
    return str(status.get("message", ""))[:200] if isinstance(status, dict) else ""
