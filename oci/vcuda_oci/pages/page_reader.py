"""Reads the limits and usage pages: for commands and the arbiter, never on the start path.

`usage` is written by the shim, so by the container: reading it believes nothing.
"""

from __future__ import annotations

import fcntl
import os
import struct
import time

from .layout import (
    ABI_VERSION,
    LIMITS_GPU_SIZE,
    LIMITS_HEAD_SIZE,
    LIMITS_MAGIC,
    LIMITS_SIZE,
    MAX_GPUS,
    MAX_PROCESSES,
    USAGE_GPU_SIZE,
    USAGE_HEAD_SIZE,
    USAGE_LOCK_BASE,
    USAGE_MAGIC,
    USAGE_SIZE,
    USAGE_SLOT_SIZE,
    LimitsGpu,
    code,
)

_LIMITS, _LIMITS_GPU = struct.Struct(code("limits")), struct.Struct(code("limits_gpu"))
_USAGE_GPU, _USAGE_SLOT = struct.Struct(code("usage_gpu")), struct.Struct(code("usage_slot"))

_FLOCK = struct.Struct("hhqqi4x")
LOCKS_SECONDS = 0.05

F_OFD_GETLK = 36  # Linux, every machine; the fcntl module has no name for it before 3.9


class Limits:
    __slots__ = ("driver_dir", "gpus", "meter_copies", "rate_until_ns", "sequence")

    def __init__(
        self,
        driver_dir: str,
        sequence: int,
        rate_until_ns: int,
        gpus: list[LimitsGpu],
        meter_copies: bool,
    ) -> None:
        self.driver_dir = driver_dir
        self.meter_copies = meter_copies
        self.sequence = sequence
        self.rate_until_ns = rate_until_ns  # CLOCK_MONOTONIC; 0: the rates count for ever
        self.gpus = gpus


class UsageGpu:
    """What a container says of its use of one GPU."""

    __slots__ = (
        "balance_ns",
        "busy_ns",
        "contexts",
        "held_bytes",
        "launches",
        "overrun_ns",
        "refusals",
        "throttled_ns",
    )

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
    ) -> None:
        self.held_bytes = held_bytes  # allocations, and what contexts are charged
        self.contexts = contexts  # that live; a process tells at most 255
        self.busy_ns = busy_ns
        self.throttled_ns = throttled_ns
        self.launches = launches
        self.refusals = refusals
        self.balance_ns = balance_ns
        self.overrun_ns = overrun_ns  # the deepest debt ever; 0 of a shim that does not tell


class UsageProcess:
    """One process that took a slot; `pid` is the container's, and may be anything."""

    __slots__ = ("busy_ns", "contexts", "generation", "held_bytes", "pid", "slot", "start_time")

    def __init__(
        self,
        slot: int,
        pid: int,
        generation: int,
        start_time: int,
        held_bytes: tuple[int, ...],
        busy_ns: tuple[int, ...],
        contexts: tuple[int, ...],
    ) -> None:
        self.slot = slot  # lock byte USAGE_LOCK_BASE + slot says whether it lives
        self.pid = pid
        self.generation = generation
        self.start_time = start_time
        self.held_bytes = held_bytes  # per GPU, in the order of the limits page
        self.busy_ns = busy_ns
        self.contexts = contexts


class Usage:
    __slots__ = ("export_table_ids", "gpus", "newer_symbols", "processes")

    def __init__(
        self,
        gpus: list[UsageGpu],
        processes: list[UsageProcess],
        newer_symbols: int = 0,
        export_table_ids: tuple[str, ...] = (),
    ) -> None:
        self.gpus = gpus
        self.processes = processes
        self.newer_symbols = newer_symbols  # driver functions that the shim's headers don't know
        self.export_table_ids = export_table_ids  # private tables handed out, as hexadecimal


def checked_head(page: bytes, table: str, magic: int, size: int) -> tuple[int, ...]:
    if len(page) < size:
        raise ValueError(f"{table} page has {len(page)} bytes, not {size}")
    head = struct.unpack_from("=4I", page)
    if head[0] != magic:
        raise ValueError(f"{table} page has magic {head[0]:#x}, not {magic:#x}")
    # A newer writer only appends, so its pages can be read too.
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
        gpus.append(LimitsGpu(text_of(entry[0]), *entry[1:7], *entry[-2:]))
    return Limits(text_of(head[5]), head[4], head[6], gpus, head[7] != 0)


def shortages(fd: int, count: int) -> list[tuple[int, int]]:
    """(throttled_ns, refusals) of each of `count` GPUs: nothing else of FD's usage page is read.

    Raises OSError, or ValueError: not a usage page, or cut short.
    """
    size = USAGE_HEAD_SIZE + count * USAGE_GPU_SIZE
    page = os.pread(fd, size, 0)
    checked_head(page, "usage", USAGE_MAGIC, size)
    entries = (
        _USAGE_GPU.unpack_from(page, at) for at in range(USAGE_HEAD_SIZE, size, USAGE_GPU_SIZE)
    )
    return [(entry[3], entry[5]) for entry in entries]


def slots_used(page: bytes) -> int:
    """How many slots of a usage page were ever taken. Raises ValueError: not a usage page."""
    return min(checked_head(page, "usage", USAGE_MAGIC, USAGE_SIZE)[3], MAX_PROCESSES)


def live_slots(fd: int, used: int = MAX_PROCESSES) -> frozenset[int]:
    """Of the first `used` slots those whose process lives, by the locks on FD's usage file.

    The kernel drops a process's lock when it dies, so this is true at once, in any pid namespace.
    It is asked for a range at a time: to answer it goes through all of the file's locks, and a
    container can have any number of them. Raises OSError: FD is no file, or one that takes no
    locks; TimeoutError: they are so many that it takes LOCKS_SECONDS of a processor.
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
        # One lock within the range, any of them; a length of 0 is all that follows.
        first = max(begin, at - USAGE_LOCK_BASE)
        after = min(end, at - USAGE_LOCK_BASE + length) if length else end
        live.update(range(first, after))
        ranges += [(begin, first), (after, end)]
    return frozenset(live)


def read_usage(page: bytes, live: frozenset[int] | None = None, count: int = MAX_GPUS) -> Usage:
    """Any content of the right head gives an answer: the numbers are the container's own word.

    `held_bytes` of a GPU is the sum over all slots. One whose process has died since counts until
    the container's next call clears it; with `live`, which live_slots answers, it does not count.
    count: so many GPUs are the container's.
    Raises ValueError: not a usage page.
    """
    head = checked_head(page, "usage", USAGE_MAGIC, USAGE_SIZE)
    held, contexts = [0] * count, [0] * count
    processes = []
    slots_at = USAGE_HEAD_SIZE + MAX_GPUS * USAGE_GPU_SIZE
    for index in range(min(head[3], MAX_PROCESSES)):
        if live is not None and index not in live:
            continue
        slot = _USAGE_SLOT.unpack_from(page, slots_at + index * USAGE_SLOT_SIZE)
        bytes_held = slot[5 : 5 + count]
        busy = slot[5 + MAX_GPUS : 5 + MAX_GPUS + count]
        live_contexts = slot[5 + 2 * MAX_GPUS : 5 + 2 * MAX_GPUS + count]
        for gpu in range(count):
            held[gpu] += bytes_held[gpu]
            contexts[gpu] += live_contexts[gpu]
        if slot[0]:
            processes.append(
                UsageProcess(
                    index,
                    slot[0],
                    slot[1],
                    slot[2],
                    tuple(bytes_held),
                    tuple(busy),
                    tuple(live_contexts),
                )
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
            )
        )
    newer_symbols, tables, ids = struct.unpack_from("=II64s", page, 16)
    known = [ids[at * 16 : at * 16 + 16].hex() for at in range(min(tables, 4))]
    return Usage(gpus, processes, newer_symbols, tuple(known))
