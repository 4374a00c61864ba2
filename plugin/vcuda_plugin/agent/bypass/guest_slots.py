"""Check whether a process uses the shim: the shim gives it a slot in the usage page.

The container can write the page. A forged slot hides a process from this check only; the checks of
memory, GPU and time do not read the page.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import NamedTuple

from vcuda_oci.guest import page_file
from vcuda_oci.ledger import liveness
from vcuda_oci.pages import layout
from vcuda_oci.system import kernel_tables

# The host cannot tell the start time that a process in another time namespace sees.
_ANY_TIME = -1
_AT = {name: at for name, at, _ in layout.offsets()}
_SLOT = struct.Struct("=IIQ")  # pid, generation, start_time: as a slot begins


class Inside(NamedTuple):
    """A process as its own container sees it. start_time: clock ticks since boot, or _ANY_TIME."""

    pid: int
    start_time: int


def inside(pid: int) -> Inside | None:
    """Return the process as its container sees it; None if it has ended or is ending."""
    try:
        status = kernel_tables.status(f"/proc/{pid}")
        own, its = _time_namespace("self"), _time_namespace(str(pid))
    except (OSError, ValueError):
        return None
    started, pids = liveness.start_time(pid), status.get("NSpid")
    # A process that is ending has no memory, and so no VmSize, but may still be listed.
    if not started or not pids or "VmSize" not in status:
        return None
    innermost = int(pids.rpartition("\t")[2])
    return Inside(innermost, started if own == its else _ANY_TIME)


def _time_namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/time")
    except FileNotFoundError:
        return ""  # the kernel has no time namespaces


def read(folder: str) -> frozenset[tuple[int, int]]:
    """Return (pid, start time) of each slot of a container's usage page, without truncated slots.

    Slot locks are ignored: a program that closes every descriptor loses its lock but keeps its slot
    until another process takes it. Raises OSError: there is no page, or the page is leased.
    """
    fd = page_file.open_page(folder + "/usage", os.O_RDONLY)
    try:
        used = int.from_bytes(os.pread(fd, 4, _AT["usage.slots_used"]), sys.byteorder)
        # Read only the used slots: there are seldom more than a few.
        room = min(used, layout.MAX_PROCESSES) * layout.USAGE_SLOT_SIZE
        table = os.pread(fd, room, _AT["usage.slot"])
    finally:
        os.close(fd)
    begins = range(0, len(table) - layout.USAGE_SLOT_SIZE + 1, layout.USAGE_SLOT_SIZE)
    slots = (_SLOT.unpack_from(table, begin) for begin in begins)
    return frozenset((pid, started) for pid, _, started in slots if pid)


def knows(slots: frozenset[tuple[int, int]], process: Inside) -> bool:
    """Whether a process has one of these slots."""
    if process.start_time == _ANY_TIME:
        return any(pid == process.pid for pid, _ in slots)
    # The shim writes start time 0 if the container has no /proc.
    return (process.pid, process.start_time) in slots or (process.pid, 0) in slots
