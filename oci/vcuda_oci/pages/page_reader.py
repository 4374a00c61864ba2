"""Parse the limits and usage pages, for commands and the arbiter. The start path does not load it.

The shim writes the usage page, so the container can write any bytes there: trust none of them.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from .layout import (
    ABI_VERSION,
    AWAKE,
    LIMITS_GPU_SIZE,
    LIMITS_HEAD_SIZE,
    LIMITS_MAGIC,
    LIMITS_SIZE,
    MAX_GPUS,
    MAX_PROCESSES,
    UNSAVED_IPC,
    UNSAVED_MANAGED,
    USAGE_GPU_SIZE,
    USAGE_HEAD_SIZE,
    USAGE_LOCK_BASE,
    USAGE_MAGIC,
    USAGE_SIZE,
    USAGE_SLOT_SIZE,
    LimitsGpu,
    code,
    offsets,
)

_LIMITS, _LIMITS_GPU = struct.Struct(code("limits")), struct.Struct(code("limits_gpu"))
_USAGE_GPU, _USAGE_SLOT = struct.Struct(code("usage_gpu")), struct.Struct(code("usage_slot"))
_AT = {name: at for name, at, _ in offsets()}
_OFF_AT, _UNSAVED_AT = _AT["usage.off_gpu"], _AT["usage_gpu.unsaved"]
_OFF_GPU = struct.Struct(f"={MAX_PROCESSES // 32}I")

_FLOCK = struct.Struct("hhqqi4x")
LOCKS_SECONDS = 0.05

F_OFD_GETLK = 36  # Source: linux/fcntl.h, the same on every architecture


class Limits:
    def __init__(
        self,
        driver_dir: str,
        sequence: int,
        rate_until_ns: int,
        gpus: list[LimitsGpu],
        meter_copies: bool,
        suspended: int = AWAKE,
        calls_ask: bool = False,
        suspensions: int = 0,
    ) -> None:
        self.driver_dir = driver_dir
        self.meter_copies = meter_copies
        self.suspended = suspended  # AWAKE, SUSPENDED or UNTIL_CALL
        self.calls_ask = calls_ask  # each call looks at `suspended`
        self.suspensions = suspensions  # how often a suspension has ended, modulo 2^32
        self.sequence = sequence
        self.rate_until_ns = rate_until_ns  # CLOCK_MONOTONIC; 0: the rates do not expire
        self.gpus = gpus


class UsageGpu:
    """A container's self-reported use of one GPU."""

    def __init__(
        self,
        held_bytes: int,
        busy_ns: int,
        throttled_ns: int,
        launches: int,
        refusals: int,
        balance_ns: int,
        contexts: int,
        overrun_ns: int,
        off_bytes: int = 0,
        room_asked: int = 0,
    ) -> None:
        self.room_asked = room_asked  # how often the driver had no memory left within the share
        self.off_bytes = off_bytes  # of processes that their own user has checkpointed
        self.held_bytes = held_bytes  # allocations, and the charge for contexts
        self.contexts = contexts  # open ones; at most 255 a process
        self.busy_ns = busy_ns
        self.throttled_ns = throttled_ns
        self.launches = launches
        self.refusals = refusals
        self.balance_ns = balance_ns
        self.overrun_ns = overrun_ns  # the largest debt so far; 0 from a shim without this field


class UsageProcess:
    """A process's slot. All values are self-reported; `pid` is in the container's pid namespace."""

    def __init__(
        self,
        slot: int,
        pid: int,
        generation: int,
        start_time: int,
        held_bytes: tuple[int, ...],
        busy_ns: tuple[int, ...],
        contexts: tuple[int, ...],
        calls_inside: int = 0,
    ) -> None:
        self.slot = slot  # the process holds a lock on byte USAGE_LOCK_BASE + slot
        self.pid = pid
        self.generation = generation
        self.start_time = start_time
        self.held_bytes = held_bytes  # per GPU, in the order of the limits page
        self.busy_ns = busy_ns
        self.contexts = contexts
        self.calls_inside = calls_inside  # calls that may be in the driver; 0 without calls_ask


class Usage:
    def __init__(
        self,
        gpus: list[UsageGpu],
        processes: list[UsageProcess],
        newer_symbols: int = 0,
        export_table_ids: tuple[str, ...] = (),
        resume_asked: int = 0,
        managed: int = 0,
        opened_ipc: int = 0,
    ) -> None:
        self.gpus = gpus
        self.processes = processes
        self.newer_symbols = newer_symbols  # driver functions that the shim's headers lack
        self.export_table_ids = export_table_ids  # private tables given to programs, in hex
        self.resume_asked = resume_asked  # grows, modulo 2^32, while calls ask to resume
        self.managed = managed  # processes with managed memory
        self.opened_ipc = opened_ipc  # processes that have opened memory of another one

    @property
    def calls_inside(self) -> int:
        """Calls that may be in the driver. Processes beyond the last slot are not counted, so a
        page without a free slot stands for one more.
        """
        inside = sum([process.calls_inside for process in self.processes])
        return inside + (len(self.processes) >= MAX_PROCESSES)


def checked_head(page: bytes, table: str, magic: int, size: int) -> tuple[int, ...]:
    if len(page) < size:
        raise ValueError(f"{table} page has {len(page)} bytes, not {size}")
    head = struct.unpack_from("=4I", page)
    if head[0] != magic:
        raise ValueError(f"{table} page has magic {head[0]:#x}, not {magic:#x}")
    # Newer versions only append fields, so their pages can be read too.
    if head[1] < ABI_VERSION or head[2] < size:
        raise ValueError(f"{table} page has version {head[1]} and size {head[2]}")
    return head


def text_of(field: bytes) -> str:
    return field.split(b"\0", 1)[0].decode("utf-8", "replace")


def read_limits(page: bytes) -> Limits:
    """Raises ValueError: not a limits page."""
    checked_head(page, "limits", LIMITS_MAGIC, LIMITS_SIZE)
    head = _LIMITS.unpack_from(page)
    gpus = []
    for index in range(min(head[3], MAX_GPUS)):
        entry = _LIMITS_GPU.unpack_from(page, LIMITS_HEAD_SIZE + index * LIMITS_GPU_SIZE)
        turn, _, _, held_ns, waited_ns = entry[7:12]
        more = {"managed_memory": entry[15], "context_bytes": entry[18]}
        more.update(latency=entry[12], mps_percent=entry[16])
        gpu = LimitsGpu(text_of(entry[0]), *entry[1:7], **more)
        gpu.turn, gpu.turn_held_ns, gpu.turn_waited_ns = turn, held_ns, waited_ns
        gpu.hidden_ms = entry[14]
        gpus.append(gpu)
    return Limits(
        text_of(head[5]), head[4], head[6], gpus, head[7] != 0, head[8], head[9] != 0, head[10]
    )


def shortages(fd: int, count: int) -> list[tuple[int, int]]:
    """(throttled_ns, refusals) of each of `count` GPUs; fd: the usage page.

    Reads only the entries of these GPUs. Raises OSError. ValueError: not a usage page, or too
    short.
    """
    size = USAGE_HEAD_SIZE + count * USAGE_GPU_SIZE
    page = os.pread(fd, size, 0)
    checked_head(page, "usage", USAGE_MAGIC, size)
    entries = (
        _USAGE_GPU.unpack_from(page, at) for at in range(USAGE_HEAD_SIZE, size, USAGE_GPU_SIZE)
    )
    return [(entry[3], entry[5]) for entry in entries]


def slots_used(page: bytes) -> int:
    """The number of slots taken so far. Raises ValueError: not a usage page."""
    return min(checked_head(page, "usage", USAGE_MAGIC, USAGE_SIZE)[3], MAX_PROCESSES)


def live_slots(fd: int, used: int = MAX_PROCESSES) -> frozenset[int]:
    """The slots, of the first `used`, of running processes; fd: the usage page.

    A running process holds a lock on its slot's byte, and the kernel drops the lock when the
    process ends, so the answer is exact in any pid namespace. Each query searches all locks of the
    file, and a container can create any number of them; so one query covers a range of slots.
    Raises OSError: `fd` takes no locks. TimeoutError: LOCKS_SECONDS of processor time passed.
    """
    live: set[int] = set()
    ranges = [(0, used)]
    deadline = time.thread_time() + LOCKS_SECONDS
    while ranges:
        begin, end = ranges.pop()
        if begin >= end:
            continue
        if time.thread_time() > deadline:
            raise TimeoutError("its usage page has too many locks")
        # struct flock: l_type, l_whence, l_start, l_len, l_pid
        asked = _FLOCK.pack(fcntl.F_WRLCK, 0, USAGE_LOCK_BASE + begin, end - begin, 0)
        kind, _, at, length, _ = _FLOCK.unpack(fcntl.fcntl(fd, F_OFD_GETLK, asked))
        if kind == fcntl.F_UNLCK:
            continue
        # The kernel reports any one lock in the range; length 0 means up to the end of the file.
        first = max(begin, at - USAGE_LOCK_BASE)
        after = min(end, at - USAGE_LOCK_BASE + length) if length else end
        live.update(range(first, after))
        ranges += [(begin, first), (after, end)]
    return frozenset(live)


def read_usage(page: bytes, live: frozenset[int] | None = None, count: int = MAX_GPUS) -> Usage:
    """Parse a usage page; its figures are self-reported and may be false.

    live: the result of live_slots; other slots are left out. Without it, the slot of an ended
    process counts until the container's next call clears it. count: number of the container's GPUs.
    `held_bytes` of a GPU is the sum over the slots, without those that a checkpoint of the
    container's own has taken off the GPU. Raises ValueError: not a usage page.
    """
    head = checked_head(page, "usage", USAGE_MAGIC, USAGE_SIZE)
    held, contexts, off = [0] * count, [0] * count, [0] * count
    are_off = _OFF_GPU.unpack_from(page, _OFF_AT)
    unsaved = [
        struct.unpack_from("=I", page, USAGE_HEAD_SIZE + at * USAGE_GPU_SIZE + _UNSAVED_AT)[0]
        for at in range(MAX_GPUS)
    ]
    managed = opened_ipc = 0
    processes = []
    slots_at = USAGE_HEAD_SIZE + MAX_GPUS * USAGE_GPU_SIZE
    for index in range(min(head[3], MAX_PROCESSES)):
        if live is not None and index not in live:
            continue
        managed += unsaved[UNSAVED_MANAGED + index // 32] >> index % 32 & 1
        opened_ipc += unsaved[UNSAVED_IPC + index // 32] >> index % 32 & 1
        slot = _USAGE_SLOT.unpack_from(page, slots_at + index * USAGE_SLOT_SIZE)
        bytes_held = slot[5 : 5 + count]
        busy = slot[5 + MAX_GPUS : 5 + MAX_GPUS + count]
        live_contexts = slot[5 + 2 * MAX_GPUS : 5 + 2 * MAX_GPUS + count]
        if are_off[index // 32] >> index % 32 & 1:
            for gpu in range(count):
                off[gpu] += bytes_held[gpu]
            bytes_held = live_contexts = (0,) * count
        for gpu in range(count):
            held[gpu] += bytes_held[gpu]
            contexts[gpu] += live_contexts[gpu]
        pid, generation, since, _, inside = slot[:5]
        if pid:
            processes.append(
                UsageProcess(index, pid, generation, since, bytes_held, busy, live_contexts, inside)
            )
    gpus = []
    for index in range(count):
        entry = _USAGE_GPU.unpack_from(page, USAGE_HEAD_SIZE + index * USAGE_GPU_SIZE)
        balance, _, busy_ns, throttled_ns, launches, refusals = entry[:6]
        overrun_ns = entry[11]
        gpus.append(
            UsageGpu(
                held[index],
                busy_ns,
                throttled_ns,
                launches,
                refusals,
                balance,
                contexts[index],
                overrun_ns,
                off[index],
                entry[17],
            )
        )
    newer_symbols, tables, ids, resume_asked = struct.unpack_from("=II64sI", page, 16)
    known = [ids[at * 16 : at * 16 + 16].hex() for at in range(min(tables, 4))]
    return Usage(gpus, processes, newer_symbols, tuple(known), resume_asked, managed, opened_ipc)
