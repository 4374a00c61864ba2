"""What the cluster page knows of DRA: the claims, and the devices that nodes offer.

kube-scheduler places claims itself; nothing here decides.
"""

from __future__ import annotations

import threading
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_hook.claims import objects
from vcuda_hook.claims.objects import Claim, Device

Object = Mapping[str, Any]

_KINDS = 2


class _Slice(NamedTuple):
    node: str
    generation: int
    devices: Sequence[Device]


class Claims:
    """Claims by UID, and slices by UID, as the API server has them."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._claims: dict[str, Claim] = {}
        self._slices: dict[str, _Slice] = {}
        self._listed: set[str] = set()

    @property
    def trouble(self) -> str:
        """Why the claims are not complete, or ""."""
        if len(self._listed) == _KINDS:
            return ""
        return "claims are not shown: the API server has not listed them yet"

    def read(self) -> tuple[list[Claim], list[Device]]:
        """The claims, and the devices of each node's newest pool."""
        with self._lock:
            claims, slices = list(self._claims.values()), list(self._slices.values())
        newest: dict[str, int] = {}
        for each in slices:
            newest[each.node] = max(newest.get(each.node, 0), each.generation)
        current = [each for each in slices if each.generation == newest[each.node]]
        return claims, [device for each in current for device in each.devices]

    def put_claim(self, item: Object) -> None:
        uid, claim = str(item["metadata"]["uid"]), objects.claim_of(item)
        with self._lock:
            if claim:
                self._claims[uid] = claim
            else:
                self._claims.pop(uid, None)

    def drop_claim(self, uid: str) -> None:
        with self._lock:
            self._claims.pop(uid, None)

    def keep_claims(self, uids: Collection[str], began: float) -> None:
        with self._lock:
            self._claims = {uid: each for uid, each in self._claims.items() if uid in uids}
            self._listed.add("claims")

    def put_slice(self, item: Object) -> None:
        spec = item.get("spec") or {}
        generation = (spec.get("pool") or {}).get("generation")
        found = _Slice(
            str(spec.get("nodeName") or ""),
            generation if type(generation) is int else 0,
            objects.devices_of(item),
        )
        with self._lock:
            self._slices[str(item["metadata"]["uid"])] = found

    def drop_slice(self, uid: str) -> None:
        with self._lock:
            self._slices.pop(uid, None)

    def keep_slices(self, uids: Collection[str], began: float) -> None:
        with self._lock:
            self._slices = {uid: each for uid, each in self._slices.items() if uid in uids}
            self._listed.add("slices")
