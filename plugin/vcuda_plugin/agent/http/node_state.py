"""What GPUs and tenants look like now: read when somebody asks, at most once a second."""

from __future__ import annotations

import asyncio
import os
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from vcuda_hook.live import container_names, usage, views

from ..ledger.records import Records

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from vcuda_hook.live.usage import Look
    from vcuda_oci.allocation import Allocation

    from ...kube.node_gpus import NodeGpus

# Who asks again within it is told the same: 500 that ask at once cost what one does.
FRESH_SECONDS = 1.0
# GPU time is told over the time since the look before, if that is no older.
LONGEST_WINDOW_NS = 60_000_000_000


class View(NamedTuple):
    """taken: when, in seconds since 1970. gpus: None until NVML has answered; else as `vcuda gpus
    --json` has them, with "numa" and "unhealthy", the reason, or null. tenants: as `vcuda ps
    --json` has them, without status. broken: file names of records that are not whole.
    distances: between the GPUs in their order (vcuda_oci.topology); None: not told."""

    node: str
    taken: float
    gpus: list[dict[str, Any]] | None
    tenants: list[dict[str, Any]]
    broken: list[str]
    distances: list[list[int]] | None = None

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "time": self.taken,
            "gpus": self.gpus,
            "tenants": self.tenants,
            "broken_records": self.broken,
            "distances": self.distances,
        }


class _Looks(NamedTuple):
    at_ns: int
    of: Mapping[str, Look | None]  # by allocation


class Node:
    """known: the node's GPUs as the agent says them; None before it does."""

    def __init__(self, name: str, state_dir: str) -> None:
        self.name, self._records = name, Records(state_dir)
        self.known: NodeGpus | None = None
        self._last: _Looks | None = None
        self._view: tuple[float, View] | None = None
        self._looking = asyncio.Lock()

    async def view(self) -> View:
        async with self._looking:
            if self._view and time.monotonic() - self._view[0] < FRESH_SECONDS:
                return self._view[1]
            # In a thread: a container can make its page slow to read, and others are answered
            # meanwhile.
            if self._before() is None and await asyncio.to_thread(self._look):
                # Nobody asked lately: there is nothing to compare with.
                await asyncio.sleep(usage.SAMPLE_SECONDS)
            view = await asyncio.to_thread(self._read)
            self._view = time.monotonic(), view
            return view

    def _look(self) -> bool:
        """Whether anybody holds anything."""
        whole, _ = self._records.read()
        self._last = self._looks_at(whole)
        return bool(whole)

    def _read(self) -> View:
        whole, broken = self._records.read()
        looks, before = self._looks_at(whole), self._before()
        self._last = looks
        earlier: Mapping[str, Look | None] = before.of if before else {}
        gpus = {gpu.uuid: gpu for gpu in self.known.gpus} if self.known else {}
        names = container_names.of(whole)
        tenants = [
            entry
            for allocation in whole
            for entry in views.tenant_entries(
                allocation,
                usage.between(allocation, earlier.get(allocation.id), looks.of[allocation.id]),
                gpus,
                names.get(allocation.id, ""),
            )
        ]
        paths = [os.path.basename(path) for path, _ in broken]
        far = self.known.distances if self.known else None
        return View(self.name, time.time(), self._gpu_entries(whole), tenants, paths, far)

    def _gpu_entries(self, whole: Sequence[Allocation]) -> list[dict[str, Any]] | None:
        if self.known is None:
            return None
        known = self.known
        entries = views.gpu_entries(known.gpus, whole, known.overcommit, known.unhealthy)
        return [{**entry, "numa": known.numa.get(entry["uuid"])} for entry in entries]

    def _looks_at(self, whole: Sequence[Allocation]) -> _Looks:
        known, ledger = self._last.of if self._last else {}, self._records.ledger
        of = {each.id: usage.look(ledger, each, known.get(each.id)) for each in whole}
        return _Looks(time.monotonic_ns(), of)

    def _before(self) -> _Looks | None:
        """The looks before, if they are not too old."""
        last = self._last
        return last if last and time.monotonic_ns() - last.at_ns <= LONGEST_WINDOW_NS else None
