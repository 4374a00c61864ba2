"""The present state of GPUs and tenants, read on request and at most once a second."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, NamedTuple

from vcuda_hook.live import turn_figures, usage, views
from vcuda_hook.live.turn_figures import GpuTurns
from vcuda_hook.live.usage import ProcessUse, Sample
from vcuda_hook.names import container_names
from vcuda_hook.names.engine_files import Described
from vcuda_oci.model.allocation import Allocation

from ...kube.node_gpus import NodeGpus
from ..gpus import sensors
from ..ledger.records import Records

# Requests within this time share one view: 500 at once cost as much as one.
FRESH_SECONDS = 1.0
# Usage is averaged since the previous sample, unless that sample is older than this.
LONGEST_WINDOW_NS = 60_000_000_000


class View(NamedTuple):
    """The state of the node at one moment.

    taken: when, in seconds since 1970. gpus: None until NVML has answered, else the entries of
    `vcuda gpus --json` with "numa" and "unhealthy" (the reason, or None) added.
    tenants: the entries of `vcuda ps --json` without status. broken: file names of damaged records.
    distances: between the GPUs, in the order of `gpus` (vcuda_oci.model.topology); None: unknown.
    processes: by allocation and UUID, the most memory first; not part of the JSON tree.
    """

    node: str
    taken: float
    gpus: list[dict[str, Any]] | None
    tenants: list[dict[str, Any]]
    broken: list[str]
    distances: list[list[int]] | None = None
    processes: Mapping[tuple[str, str], Sequence[ProcessUse]] = MappingProxyType({})

    def tenants_of(self, uuid: str) -> list[dict[str, Any]]:
        """The tenants of one GPU."""
        return [entry for entry in self.tenants if entry["gpu_uuid"] == uuid]

    def as_json(self) -> dict[str, Any]:
        return {
            "node": self.node,
            "time": self.taken,
            "gpus": self.gpus,
            "tenants": self.tenants,
            "broken_records": self.broken,
            "distances": self.distances,
        }


class _Samples(NamedTuple):
    """The usage pages of all allocations, and the turns on all GPUs, read at `at_ns`."""

    at_ns: int
    of: Mapping[str, Sample | None]  # by allocation
    turns: Mapping[str, GpuTurns]  # by UUID


class Node:
    """Reads the node's state. known: the GPUs as last reported by the agent; None before that.

    described: names and images from the engines' files, by allocation, as last reported by the
    agent: this process may not read these files. sensors: figures by UUID and key, likewise.
    """

    def __init__(self, name: str, state_dir: str) -> None:
        self.name, self.state_dir, self._records = name, state_dir, Records(state_dir)
        self.known: NodeGpus | None = None
        self.described: Mapping[str, Described] = {}
        self.sensors: Mapping[str, Mapping[str, float]] = {}
        self._last: _Samples | None = None
        self._view: tuple[float, View] | None = None
        self._lock = asyncio.Lock()

    async def view(self) -> View:
        async with self._lock:
            if self._view and time.monotonic() - self._view[0] < FRESH_SECONDS:
                return self._view[1]
            # In a thread: a container can make its page slow to read, and other requests must not
            # wait for it.
            if self._before() is None and await asyncio.to_thread(self._take_first):
                # There was no recent sample; two samples are needed for a rate.
                await asyncio.sleep(usage.SAMPLE_SECONDS)
            view = await asyncio.to_thread(self._read)
            self._view = time.monotonic(), view
            return view

    def _take_first(self) -> bool:
        """Take a first sample; return whether there are any allocations."""
        allocations = self._records.read()
        self._last = self._sample(allocations)
        return bool(allocations)

    def _read(self) -> View:
        allocations = self._records.read()
        samples, before = self._sample(allocations), self._before()
        self._last = samples
        earlier: Mapping[str, Sample | None] = before.of if before else {}
        gpus = {gpu.uuid: gpu for gpu in self.known.gpus} if self.known else {}
        names = {**container_names.of(allocations), **self.described}
        tenants = [
            entry
            for allocation in allocations
            for entry in views.tenant_entries(
                allocation,
                usage.between(allocation, earlier.get(allocation.id), samples.of[allocation.id]),
                gpus,
                names[allocation.id],
            )
        ]
        gpu_entries = self._gpu_entries(allocations)
        turns_before = before.turns if before else {}
        views.complete(tenants, gpu_entries or [], self.state_dir, turns_before, samples.turns)
        paths = [os.path.basename(path) for path, _ in self._records.broken]
        far = self.known.distances if self.known else None
        processes = {
            (each.id, share.uuid): usage.processes_between(
                earlier.get(each.id), samples.of[each.id], at
            )
            for each in allocations
            for at, share in enumerate(each.shares)
        }
        return View(self.name, time.time(), gpu_entries, tenants, paths, far, processes)

    def _gpu_entries(self, allocations: Sequence[Allocation]) -> list[dict[str, Any]] | None:
        if self.known is None:
            return None
        known = self.known
        entries = views.gpu_entries(known.gpus, allocations, known.rules(), known.unhealthy)
        return [
            {
                **entry,
                "numa": known.numa.get(entry["uuid"]),
                "sensors": {
                    key: self.sensors.get(entry["uuid"], {}).get(key) for key in sensors.KEYS
                },
            }
            for entry in entries
        ]

    def _sample(self, allocations: Sequence[Allocation]) -> _Samples:
        known, ledger = self._last.of if self._last else {}, self._records.ledger
        of = {each.id: usage.take_sample(ledger, each, known.get(each.id)) for each in allocations}
        return _Samples(time.monotonic_ns(), of, turn_figures.read(ledger.state_dir))

    def _before(self) -> _Samples | None:
        """The previous sample, unless it is too old."""
        last = self._last
        return last if last and time.monotonic_ns() - last.at_ns <= LONGEST_WINDOW_NS else None
