"""The processes below each container of `vcuda top`, with the use between two readings.

A thread reads them while they are shown: a runtime that hangs delays no sample.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError

from ..live import process_use, usage
from ..live.process_use import ContainerProcess

_PERIOD_SECONDS = 1.0
# Rows of one container; the screen says how many more processes there are.
MOST = 20


class ProcessRow(NamedTuple):
    """A process on one GPU. core_percent: of the GPU's time; None: unknown, as is memory_bytes of a
    process that uses no GPU."""

    pid: int
    command: str
    core_percent: float | None
    memory_bytes: int | None


class Reading(NamedTuple):
    """at_ns: CLOCK_MONOTONIC. of: by allocation. uuids: its GPUs, in the order of the figures."""

    at_ns: int
    of: Mapping[str, Sequence[ContainerProcess]]
    uuids: Mapping[str, Sequence[str]]


NOTHING = Reading(0, {}, {})


def rows(id: str, uuid: str, before: Reading, now: Reading) -> list[ProcessRow]:
    """The processes of an allocation on one GPU, by memory: the largest first."""
    earlier = {process.pid: process for process in before.of.get(id, ())}
    if uuid not in now.uuids.get(id, ()):
        return []
    at = now.uuids[id].index(uuid)
    found = []
    for each in now.of[id]:
        memory = each.held_bytes[at] if at < len(each.held_bytes) else None
        known, busy = earlier.get(each.pid), None
        if known and at < min(len(known.busy_ns), len(each.busy_ns)):
            passed = now.at_ns - before.at_ns
            busy = usage.percent_of(known.busy_ns[at], each.busy_ns[at], passed)
        found.append(ProcessRow(each.pid, each.command, busy, memory))
    return sorted(found, key=lambda row: (row.memory_bytes is None, -(row.memory_bytes or 0)))


class ProcessRows:
    """Reads the processes of the ledger in `state_dir`."""

    def __init__(self, state_dir: str) -> None:
        self._ledger, self._shown = Ledger(state_dir), threading.Event()
        self._known = NOTHING, NOTHING
        self._thread: threading.Thread | None = None

    def show(self, shown: bool) -> None:
        """Begin to read the processes, or rest."""
        if not shown:
            self._shown.clear()
            return
        self._shown.set()
        if self._thread is None:
            self._thread = threading.Thread(target=self._follow, daemon=True)
            self._thread.start()

    def of(self, id: str, uuid: str) -> list[ProcessRow]:
        return rows(id, uuid, *self._known) if self._shown.is_set() else []

    def _follow(self) -> None:
        while self._shown.wait():
            self._known = self._known[1], self._read()
            time.sleep(_PERIOD_SECONDS)

    def _read(self) -> Reading:
        try:
            allocations, _ = self._ledger.read()
        except (OSError, VcudaError):
            return NOTHING
        return Reading(
            time.monotonic_ns(),
            {each.id: process_use.of(self._ledger, each) for each in allocations},
            {each.id: [share.uuid for share in each.shares] for each in allocations},
        )
