"""Gives back what containers left behind: who was killed at its release, whose pod is gone; and
ends a change of a share that was cut short.

Again and again the records are held against the kernel alone: a container lives whose runtime's
own notes name a first process that does. Only of the others is the runtime asked, under the lock.

Between two sweeps the kernel tells of each first process that ends (pidfd). Where the runtime's own
`delete` has not released the record a moment later, the next sweep comes at once.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
import time
from typing import TYPE_CHECKING

from vcuda_oci import liveness, names, resize
from vcuda_oci.errors import VcudaError
from vcuda_oci.ledger import Ledger

from .process_ends import FirstProcess, ProcessEnds
from .records import Records

if TYPE_CHECKING:
    from vcuda_oci.allocation import Allocation

PERIOD_SECONDS = 15
# How soon the first process of a container that has come is followed.
FOLLOW_SECONDS = 2.0
# Within it the runtime's `delete` follows the end of a container.
DELETE_SECONDS = 0.5

_log = logging.getLogger(__name__)


async def keep(state_dir: str) -> None:
    """Sweep, in a thread: a runtime may take its time to answer."""
    records, ends = Records(state_dir), ProcessEnds()
    first = FirstProcesses(records)
    due = 0.0
    try:
        while True:
            try:
                ended = ends.take()
                if time.monotonic() >= due or (ended and first.still_stands(ended)):
                    due = time.monotonic() + PERIOD_SECONDS
                    for id in await asyncio.to_thread(sweep, records):
                        _log.info("%s: released; its container was gone", id)
                    _return_free_memory()
                ends.follow(await asyncio.to_thread(first.find))
            except (VcudaError, OSError) as error:
                _log.warning("cannot sweep: %s", error)
            if await ends.wait(FOLLOW_SECONDS):
                await asyncio.sleep(DELETE_SECONDS)
    finally:
        ends.follow({})


def _return_free_memory() -> None:
    """What calls of the kubelet and threads leave free lies between what lives: without this the
    process grows by a page now and then, as long as pods come and go. Source: malloc_trim(3)."""
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim:
        trim(0)


def sweep(known: Records) -> list[str]:
    """The ids that were released. Raises VcudaError, OSError."""
    ledger = Ledger(known.ledger.state_dir, names.AGENT_PROGRAM)
    if os.path.isdir(ledger.containers):
        for id in ledger.cut_back():
            _log.warning("%s: its usage page was longer than it is made; cut back", id)
        ledger.cut_ended()
    records = known.read()[0]
    suspects = {
        record.id
        for record in records
        if not surely_lives(record) and _sees_notes_of(record.runtime)
    }
    # Under way, or cut short: whoever changes a share has the lock until he is done.
    changing = any(record.becoming for record in records)
    if not suspects and not changing:
        return []
    with ledger:
        gone = ledger.sweep(lambda record: record.id not in suspects or liveness.is_alive(record))
        if changing:
            resize.finish(ledger)
        return gone


class FirstProcesses:
    """The first processes of the containers that hold records, and of their pods' sandboxes."""

    def __init__(self, records: Records) -> None:
        self._records = records
        self._changes = -1
        self._found: dict[FirstProcess, str] = {}
        self._missing: list[Allocation] = []

    def find(self) -> dict[FirstProcess, str]:
        """Each one's record. A runtime that has not written its notes yet is asked again."""
        whole = self._records.read()[0]
        if self._records.changes != self._changes:
            self._changes, self._found = self._records.changes, {}
            self._missing = [record for record in whole if not record.is_named_slice]
        asked, self._missing = self._missing, []
        for record in asked:
            found = dict.fromkeys(_first_processes(record), record.id)
            self._found.update(found)
            if not found and _sees_notes_of(record.runtime):
                self._missing.append(record)
        return self._found

    def still_stands(self, ids: set[str]) -> bool:
        """Whether a record of these ids does, though a first process of it has ended."""
        return any(record.id in ids for record in self._records.read()[0])


def _first_processes(record: Allocation) -> list[FirstProcess]:
    ids = (record.container_id, record.pod.get("sandbox_id", ""))
    found = (liveness.first_process(record.runtime, id) for id in ids if id)
    return [FirstProcess(*process) for process in found if process]


def surely_lives(record: Allocation) -> bool:
    """Whether the container's first process, or its pod's, runs; False proves nothing."""
    if record.is_named_slice or liveness.claimant_lives(record):
        return True
    ids = (record.container_id, record.pod.get("sandbox_id", ""))
    return any(liveness.first_process_runs(record.runtime, id) for id in ids if id)


def _sees_notes_of(runtime: list[str]) -> bool:
    """Whether a container that is not found is gone: not if an agent in a pod lacks the folder that
    its runtime keeps notes in."""
    return os.path.isdir(liveness.notes_folder(runtime))
