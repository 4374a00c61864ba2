"""Whether the shim knows a process: has it a slot in its container's usage page?

The page is the container's to write. A slot that is a lie hides a process from this question and
from no other.
"""

from __future__ import annotations

import os
import struct
import sys
from typing import NamedTuple

from vcuda_oci import pages
from vcuda_oci.guest import kernel_tables, page_file

# Of a process in a time namespace of its own the host cannot say when it believes to have started.
_ANY_TIME = -1
_AT = {name: at for name, at, _ in pages.offsets()}
_SLOT = struct.Struct("=IIQ")  # pid, generation, start_time: as a slot begins


class Inside(NamedTuple):
    """A process as its own container sees it. start_time: clock ticks since boot, or _ANY_TIME."""

    pid: int
    start_time: int


def inside(pid: int) -> Inside | None:
    """None: it is gone, or ends and has no memory any more."""
    try:
        status = kernel_tables.status(f"/proc/{pid}")
        with open(f"/proc/{pid}/stat", "rb") as file:
            started = int(file.read().rpartition(b")")[2].split()[19])
        own, its = _time_namespace("self"), _time_namespace(str(pid))
    except (OSError, ValueError):
        return None
    pids = status.get("NSpid")
    # One that ends has given up its memory first.
    if not pids or "VmSize" not in status:
        return None
    innermost = int(pids.rpartition("\t")[2])
    return Inside(innermost, started if own == its else _ANY_TIME)


def _time_namespace(pid: str) -> str:
    try:
        return os.readlink(f"/proc/{pid}/ns/time")
    except FileNotFoundError:
        return ""  # this kernel has none


def read(folder: str) -> frozenset[tuple[int, int]]:
    """(pid, start time) of each slot of a container's usage page; none of one that was cut short.

    A program that closed every descriptor has lost its slot's lock and keeps the slot for as long
    as nobody takes it: the locks are not asked. Raises OSError: there is no page, or it is leased.
    """
    fd = page_file.open_page(folder + "/usage", os.O_RDONLY)
    try:
        used = int.from_bytes(os.pread(fd, 4, _AT["usage.slots_used"]), sys.byteorder)
        # Of a page that is whole there are seldom more than a few.
        room = min(used, pages.MAX_PROCESSES) * pages.USAGE_SLOT_SIZE
        table = os.pread(fd, room, _AT["usage.slot"])
    finally:
        os.close(fd)
    begins = range(0, len(table) - pages.USAGE_SLOT_SIZE + 1, pages.USAGE_SLOT_SIZE)
    slots = (_SLOT.unpack_from(table, begin) for begin in begins)
    return frozenset((pid, started) for pid, _, started in slots if pid)


def knows(slots: frozenset[tuple[int, int]], process: Inside) -> bool:
    if process.start_time == _ANY_TIME:
        return any(pid == process.pid for pid, _ in slots)
    # Where no /proc is mounted the shim writes no time.
    return (process.pid, process.start_time) in slots or (process.pid, 0) in slots
