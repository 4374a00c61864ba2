"""Release the allocations of ended containers, and complete interrupted changes of shares.

A record is stale if its release was interrupted, or if its pod was removed without a release. A
sweep works in two steps. First it reads the state files of the low-level runtimes and asks the
kernel whether the first processes in them run: those containers are alive. Then it takes the lock
and asks the runtime about the remaining ones.

A sweep starts every PERIOD_SECONDS. A pidfd reports the end of a first process between sweeps. The
runtime's `delete` then has DELETE_SECONDS to release the record; otherwise the next sweep starts at
once. A sandbox without a process (CRI-O) may end later than its containers: its file is looked for
every FOLLOW_SECONDS.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time

from vcuda_oci.ledger import liveness, resize
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError

from .process_ends import FirstProcess, ProcessEnds
from .records import Records

PERIOD_SECONDS = 15
# The longest time until the first process of a new container is followed.
FOLLOW_SECONDS = 2.0
# The time that the runtime's `delete` may take after the end of a container.
DELETE_SECONDS = 0.5

_log = logging.getLogger(__name__)


async def run(state_dir: str) -> None:
    """Sweep until cancelled, in a thread because a runtime may answer slowly."""
    records, ends = Records(state_dir), ProcessEnds()
    first = FirstProcesses(records)
    due = 0.0
    try:
        while True:
            try:
                ended, unpinned = ends.take(), first.any_unpinned()
                recorded = bool(ended) and first.any_recorded(ended)
                if time.monotonic() >= due or unpinned or recorded:
                    due = time.monotonic() + PERIOD_SECONDS
                    for id in await asyncio.to_thread(sweep, records):
                        _log.info("%s: released; its container has ended", id)
                    _return_free_memory()
                ends.follow(await asyncio.to_thread(first.find))
            except (VcudaError, OSError) as error:
                _log.warning("cannot sweep: %s", error)
            if await ends.wait(FOLLOW_SECONDS):
                await asyncio.sleep(DELETE_SECONDS)
    finally:
        ends.follow({})


def _return_free_memory() -> None:
    """Return free heap memory to the kernel: fragmentation would let the process grow slowly.

    Source: malloc_trim(3).
    """
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def sweep(known: Records) -> list[str]:
    """Release stale records; return their ids. Raises VcudaError, OSError."""
    ledger = known.ledger
    if os.path.isdir(ledger.containers):
        for id in ledger.cut_back():
            _log.warning("%s: its usage page was too long; truncated", id)
        ledger.cut_ended()
    records = known.read()
    suspects = {
        record.id
        for record in records
        if not surely_lives(record) and _can_read_state_of(record.runtime)
    }
    # A change of a share is in progress or was interrupted. One in progress holds the lock, so a
    # change that is still recorded when this sweep has the lock was interrupted.
    changing = any(record.becoming for record in records)
    if not suspects and not changing:
        return []
    with ledger:
        released = ledger.sweep(
            lambda record: record.id not in suspects or liveness.is_alive(record)
        )
        if changing:
            resize.finish(ledger)
        return released


class FirstProcesses:
    """Finds the first processes of recorded containers and of their pods' sandboxes."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._changes = -1
        self._found: dict[FirstProcess, str] = {}
        self._missing: list[Allocation] = []
        self._pinned: set[str] = set()

    def find(self) -> dict[FirstProcess, str]:
        """Return the record id of each first process.

        A container without a state file is tried again with the next call.
        """
        whole = self._records.read()
        if self._records.changes != self._changes:
            self._changes, self._found = self._records.changes, {}
            self._missing = [record for record in whole if not record.is_named_slice]
        asked, self._missing = self._missing, []
        for record in asked:
            found = dict.fromkeys(_first_processes(record), record.id)
            self._found.update(found)
            if not found and _can_read_state_of(record.runtime):
                self._missing.append(record)
        return self._found

    def any_recorded(self, ids: set[str]) -> bool:
        """Whether a record with one of these ids exists."""
        return any(record.id in ids for record in self._records.read())

    def any_unpinned(self) -> bool:
        """Whether a sandbox without a process has ended since the last call."""
        records = self._records.read()
        now = {record.id: liveness.is_sandbox_pinned(record) for record in records}
        before, self._pinned = self._pinned, {id for id, pinned in now.items() if pinned}
        return any(not now.get(id, True) for id in before)


def _first_processes(record: Allocation) -> list[FirstProcess]:
    ids = (record.container_id, record.pod.get("sandbox_id", ""))
    found = (liveness.first_process(record.runtime, id) for id in ids if id)
    return [FirstProcess(*process) for process in found if process]


def surely_lives(record: Allocation) -> bool:
    """Whether the container's first process, or its pod's sandbox, is there; False does not prove
    its end."""
    if record.is_named_slice or liveness.claimant_lives(record):
        return True
    if liveness.is_sandbox_pinned(record):
        return True
    ids = (record.container_id, record.pod.get("sandbox_id", ""))
    return any(liveness.first_process_runs(record.runtime, id) for id in ids if id)


def _can_read_state_of(runtime: list[str]) -> bool:
    """Whether the runtime's state folder exists here; an agent in a pod may not see it.

    Without it, a container that is not found may still be alive.
    """
    return os.path.isdir(liveness.state_folder(runtime))
