"""Keeps this node's ResourceSlices as the GPUs are: a list and watch, and a thread that writes."""

from __future__ import annotations

import logging
import threading
import time
from collections.abc import Sequence

from vcuda_hook.claims.dra_names import DRIVER

from ...kube.api import MERGE_PATCH, ApiError, KubeApi, Object, message_of
from ...kube.list_watch import ListWatch
from ...kube.retry import Retry
from . import slices

_PAGE = 100
# Between writes of fields that the API server has dropped.
_DROPPED_SECONDS = 300.0
_LONGEST_PAUSE_SECONDS = 30.0

_log = logging.getLogger(__name__)


class Publisher(ListWatch):
    """The slices of `node`. Run `follow` and `write` in threads of their own."""

    def __init__(self, node: str) -> None:
        query = {"fieldSelector": f"spec.driver={DRIVER},spec.nodeName={node}"}
        super().__init__(f"ResourceSlices of node {node}", slices.PATH, _PAGE, query)
        self._node, self._node_uid = node, ""
        self._listing: dict[str, Object] = {}
        self._existing: dict[str, Object] = {}
        self._is_listed = False
        self._devices: Sequence[Object] | None = None
        self._counter_sets: Sequence[Object] = ()
        self._lock = threading.Condition()
        self._due = False
        self._dropped: list[str] = []
        self._anew = True

    def publish(self, devices: Sequence[Object], counter_sets: Sequence[Object]) -> None:
        """Offer these devices from now on, which consume these counters."""
        with self._lock:
            self._devices, self._counter_sets = devices, counter_sets
            self._wake()

    def begin_list(self) -> None:
        self._listing = {}

    def listed(self, item: Object) -> None:
        self._listing[str(item["metadata"]["name"])] = item

    def listed_all(self, began: float) -> None:
        with self._lock:
            self._existing, self._is_listed = self._listing, True
            self._wake()

    def changed(self, item: Object) -> None:
        with self._lock:
            self._existing[str(item["metadata"]["name"])] = item
            self._wake()

    def removed(self, item: Object) -> None:
        with self._lock:
            self._existing.pop(str(item["metadata"]["name"]), None)
            self._wake()

    def write(self, api: KubeApi) -> None:
        """Write what differs, until the process ends."""
        retry = Retry(_log.warning, _LONGEST_PAUSE_SECONDS)
        while True:
            with self._lock:
                pause = _DROPPED_SECONDS if self._dropped else None
                self._anew |= not self._lock.wait_for(lambda: self._due, pause)
                self._due = False
            try:
                self._write(api)
                retry.forget()
            except ApiError as error:
                time.sleep(retry.after(f"ResourceSlices: {error}; trying again"))
                with self._lock:
                    self._wake()

    def _wake(self) -> None:
        self._due = True
        self._lock.notify_all()

    def _write(self, api: KubeApi) -> None:
        with self._lock:
            if not self._is_listed or self._devices is None:
                return
            devices, existing = self._devices, dict(self._existing)
            counters = self._counter_sets
            anew, self._anew = self._anew, False
        due = slices.writes(self._node, self._node_uid, devices, existing, counters, anew)
        if due and not self._node_uid:
            self._node_uid = _uid_of(api, self._node)
            due = slices.writes(self._node, self._node_uid, devices, existing, counters, anew)
        for each in due:
            kind = MERGE_PATCH if each.method == "PATCH" else "application/json"
            status, answer = api.call(each.method, each.path, each.body, kind=kind)
            if status >= 400 and not (each.method == "DELETE" and status == 404):
                raise ApiError(status, f"{each.method} {each.path}: {message_of(answer)}")
            # The watch brings this object later; what is decided before is decided on it. Or it
            # came sooner than the answer, with what another writer did since.
            with self._lock:
                if each.body is not None and self.is_newer(answer):
                    self._existing[str(answer["metadata"]["name"])] = answer
                name = each.path.rpartition("/")[2]
                if each.body is None and self._existing.get(name) is existing[name]:
                    del self._existing[name]
        if due:
            _log.info("%d devices in ResourceSlices of pool %s", len(devices), self._node)
        with self._lock:
            self._note(slices.dropped(devices, self._existing.values()))

    def _note(self, dropped: list[str]) -> None:
        for field in dropped:
            if field not in self._dropped:
                gate, follows = slices.GATED[field]
                _log.warning(
                    "ResourceSlices: the API server drops %s: %s; enable the feature gate %s in it,"
                    " kube-scheduler, the controller manager and the kubelets",
                    field,
                    follows,
                    gate,
                )
        self._dropped = dropped


def _uid_of(api: KubeApi, node: str) -> str:
    """The uid of the node's object, or "" if this program may not read it."""
    try:
        return str(api.get(f"/api/v1/nodes/{node}")["metadata"]["uid"])
    except (ApiError, KeyError, TypeError):
        return ""
