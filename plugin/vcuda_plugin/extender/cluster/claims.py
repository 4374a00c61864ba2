"""What the cluster page knows of DRA: the claims, and the devices that nodes offer.

kube-scheduler places claims itself; nothing here decides.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, Generic, NamedTuple, TypeVar

from vcuda_hook.claims import objects
from vcuda_hook.claims.objects import Claim, Device

Object = Mapping[str, Any]
T = TypeVar("T")


class Kept(Generic[T]):
    """The objects of one kind as the API server has them, by UID. read: None: not to be kept.

    is_complete: whether they were listed.
    """

    def __init__(self, read: Callable[[Object], T | None]) -> None:
        self._read, self._lock = read, threading.Lock()
        self._found: dict[str, T] = {}
        self.is_complete = False

    def values(self) -> list[T]:
        with self._lock:
            return list(self._found.values())

    def put(self, item: Object) -> None:
        uid, value = str(item["metadata"]["uid"]), self._read(item)
        with self._lock:
            if value is None:
                self._found.pop(uid, None)
            else:
                self._found[uid] = value

    def drop(self, uid: str) -> None:
        with self._lock:
            self._found.pop(uid, None)

    def keep(self, uids: Collection[str], began: float) -> None:
        with self._lock:
            self._found = {uid: each for uid, each in self._found.items() if uid in uids}
            self.is_complete = True


class _Slice(NamedTuple):
    node: str
    generation: int
    devices: Sequence[Device]


class Claims:
    def __init__(self) -> None:
        self.claims, self.slices = Kept(objects.claim_of), Kept(_slice_of)

    @property
    def trouble(self) -> str:
        """Why the claims are not complete, or ""."""
        if self.claims.is_complete and self.slices.is_complete:
            return ""
        return "claims are not shown: the API server has not listed them yet"

    def read(self) -> tuple[list[Claim], list[Device]]:
        """The claims, and the devices of each node's newest pool."""
        slices = self.slices.values()
        newest: dict[str, int] = {}
        for each in slices:
            newest[each.node] = max(newest.get(each.node, 0), each.generation)
        current = [each for each in slices if each.generation == newest[each.node]]
        return self.claims.values(), [device for each in current for device in each.devices]


def _slice_of(item: Object) -> _Slice:
    spec = item.get("spec") or {}
    generation = (spec.get("pool") or {}).get("generation")
    return _Slice(
        str(spec.get("nodeName") or ""),
        generation if type(generation) is int else 0,
        objects.devices_of(item),
    )
