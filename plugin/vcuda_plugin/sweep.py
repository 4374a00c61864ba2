"""Gives back what containers left behind: who was killed at its release, whose pod is gone; and
ends a change of a share that was cut short.

Again and again the records are held against the kernel alone: a container lives whose runtime's
own notes name a first process that does. Only of the others is the runtime asked, under the lock.
"""

from __future__ import annotations

import asyncio
import ctypes
import logging
import os
from typing import TYPE_CHECKING

from vcuda_oci import files, jsontree, liveness, names, resize
from vcuda_oci.errors import VcudaError
from vcuda_oci.ledger import Ledger

from .records import Records

if TYPE_CHECKING:
    from vcuda_oci.allocation import Allocation

PERIOD_SECONDS = 15
# By runtime, the file of its notes and what they call the first process and its start (clock ticks
# since boot). Source: runc libcontainer State; crun libcrun_write_container_status. Seen: 1.1, 1.8.
_NOTES = (
    ("state.json", "init_process_pid", "init_process_start"),
    ("status", "pid", "process-start-time"),
)

_log = logging.getLogger(__name__)


async def keep(state_dir: str) -> None:
    """Sweep, in a thread: a runtime may take its time to answer."""
    records = Records(state_dir)
    while True:
        await asyncio.sleep(PERIOD_SECONDS)
        try:
            for id in await asyncio.to_thread(sweep, records):
                _log.info("%s: released; its container was gone", id)
        except (VcudaError, OSError) as error:
            _log.warning("cannot sweep: %s", error)
        _return_free_memory()


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


def surely_lives(record: Allocation) -> bool:
    """Whether the container's first process, or its pod's, runs; False proves nothing."""
    if record.is_named_slice or liveness.claimant_lives(record):
        return True
    ids = (record.container_id, record.pod.get("sandbox_id", ""))
    return any(_first_process_runs(record.runtime, id) for id in ids if id)


def _first_process_runs(runtime: list[str], container_id: str) -> bool:
    folder = _root(runtime)
    for name, pid_key, start_key in _NOTES:
        try:
            notes = jsontree.loads(files.read(f"{folder}/{container_id}/{name}", 1 << 22).decode())
        except (OSError, ValueError):
            continue
        if isinstance(notes, dict):
            pid, started = notes.get(pid_key), notes.get(start_key)
            if type(pid) is int and type(started) is int and started:
                return liveness.start_time(pid) == started
    return False


def _sees_notes_of(runtime: list[str]) -> bool:
    """Whether a container that is not found is gone: not if an agent in a pod lacks the folder that
    its runtime keeps notes in."""
    return os.path.isdir(_root(runtime))


def _root(runtime: list[str]) -> str:
    """Where it keeps its notes, root's where it was not told. Source: runc(8), crun(1)."""
    if "--root" in runtime[:-1]:
        return runtime[runtime.index("--root") + 1]
    return f"/run/{os.path.basename(runtime[0])}" if runtime else ""
