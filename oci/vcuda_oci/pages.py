"""The limits and usage pages that the host and the shim share: mirror of libvcuda/vcuda_abi.h.

`limits` is written here and mapped read-only in the container. `usage` is written by the shim, so
by the container: reading it believes nothing. Imports only `struct`: this is on the start path.
"""

from __future__ import annotations

import struct

TYPE_CHECKING = False  # typing itself would cost an import
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Protocol

    class GpuLimits(Protocol):
        """What one GPU's entry of the limits page is made from."""

        @property
        def uuid(self) -> str: ...  # as NVML prints it: "GPU-5f1c…"
        @property
        def memory_bytes(self) -> int: ...
        @property
        def core_percent(self) -> int: ...  # 1..100; 100 is not paced
        @property
        def core_ceiling_percent(self) -> int: ...
        @property
        def policy(self) -> int: ...  # POLICY_…
        @property
        def rate_ppm(self) -> int: ...  # GPU time granted now, parts per million
        @property
        def weight(self) -> int: ...
        @property
        def managed_memory(self) -> int: ...  # 1: cuMemAlloc gives managed memory
        @property
        def context_bytes(self) -> int: ...  # what each context counts; 0: nothing


ABI_VERSION = 1
LIMITS_MAGIC = 0x4D494C56
USAGE_MAGIC = 0x47535556
MAX_GPUS = 16
MAX_PROCESSES = 256
USAGE_LOCK_BASE = 0x100000
F_OFD_GETLK = 36  # Linux, every machine; the fcntl module has no name for it before 3.9

GUEST_DIR = "/usr/local/vcuda"
GUEST_LIMITS = GUEST_DIR + "/limits"
GUEST_USAGE = GUEST_DIR + "/usage"
GUEST_DRIVER = GUEST_DIR + "/driver"

POLICY_FIXED = 0
POLICY_ELASTIC = 1
POLICY_WEIGHTED = 2
POLICY_BEST_EFFORT = 3

# Field name and struct code, in order and without gaps.
FIELDS = {
    "limits": (
        ("magic", "I"),
        ("version", "I"),
        ("size", "I"),
        ("gpu_count", "I"),
        ("sequence", "Q"),
        ("driver_dir", "64s"),
        ("rate_until_ns", "Q"),
        ("meter_copies", "I"),
        ("reserved", "28s"),
    ),
    "limits_gpu": (
        ("uuid", "48s"),
        ("memory_bytes", "Q"),
        ("core_percent", "I"),
        ("core_ceiling_percent", "I"),
        ("policy", "I"),
        ("rate_ppm", "I"),
        ("weight", "I"),
        ("reserved", "40s"),
        ("managed_memory", "I"),
        ("context_bytes", "Q"),
    ),
    "usage": (
        ("magic", "I"),
        ("version", "I"),
        ("size", "I"),
        ("slots_used", "I"),
        ("newer_symbols", "I"),
        ("export_tables", "I"),
        ("export_table_ids", "64s"),
        ("reserved", "40s"),
    ),
    "usage_gpu": (
        ("balance_ns", "q"),
        ("refilled_ns", "Q"),
        ("busy_ns", "Q"),
        ("throttled_ns", "Q"),
        ("launches", "Q"),
        ("refusals", "Q"),
        ("sample_ns", "Q"),
        ("sample_busy", "Q"),
        ("earlier_ns", "Q"),
        ("earlier_busy", "Q"),
        ("long_until_ns", "Q"),
        ("reserved", "40s"),
    ),
    "usage_slot": (
        ("pid", "I"),
        ("generation", "I"),
        ("start_time", "Q"),
        ("asking", "I"),
        ("padding", "I"),
        ("held_bytes", f"{MAX_GPUS}Q"),
        ("busy_ns", f"{MAX_GPUS}Q"),
        ("contexts", f"{MAX_GPUS}B"),
        ("thread_asking", "4I"),
        ("reserved", "8s"),
    ),
}


def code(table: str) -> str:
    """The struct code of a whole table; "=" is the machine's byte order without padding."""
    return "=" + "".join(field_code for _, field_code in FIELDS[table])


LIMITS_HEAD_SIZE = struct.calcsize(code("limits"))
LIMITS_GPU_SIZE = struct.calcsize(code("limits_gpu"))
USAGE_HEAD_SIZE = struct.calcsize(code("usage"))
USAGE_GPU_SIZE = struct.calcsize(code("usage_gpu"))
USAGE_SLOT_SIZE = struct.calcsize(code("usage_slot"))
LIMITS_SIZE = LIMITS_HEAD_SIZE + MAX_GPUS * LIMITS_GPU_SIZE
USAGE_SIZE = USAGE_HEAD_SIZE + MAX_GPUS * USAGE_GPU_SIZE + MAX_PROCESSES * USAGE_SLOT_SIZE


def offsets() -> Iterator[tuple[str, int, int]]:
    """(table.field, offset, size) of every field, as build/abi_print prints them."""
    tails = {
        "limits": (("gpu", MAX_GPUS * LIMITS_GPU_SIZE),),
        "usage": (("gpu", MAX_GPUS * USAGE_GPU_SIZE), ("slot", MAX_PROCESSES * USAGE_SLOT_SIZE)),
    }
    for table, fields in FIELDS.items():
        at = 0
        for name, field_code in fields:
            size = struct.calcsize("=" + field_code)
            yield f"{table}.{name}", at, size
            at += size
        for name, size in tails.get(table, ()):
            yield f"{table}.{name}", at, size
            at += size
        yield f"{table}.whole", 0, at


class LimitsGpu:
    """One GPU's entry of a limits page that was read."""

    __slots__ = (
        "context_bytes",
        "core_ceiling_percent",
        "core_percent",
        "managed_memory",
        "memory_bytes",
        "policy",
        "rate_ppm",
        "uuid",
        "weight",
    )

    def __init__(
        self,
        uuid: str,
        memory_bytes: int,
        core_percent: int,
        core_ceiling_percent: int,
        policy: int,
        rate_ppm: int,
        weight: int,
        managed_memory: int = 0,
        context_bytes: int = 0,
    ) -> None:
        self.uuid = uuid
        self.memory_bytes = memory_bytes
        self.core_percent = core_percent
        self.core_ceiling_percent = core_ceiling_percent
        self.policy = policy
        self.rate_ppm = rate_ppm
        self.weight = weight
        self.managed_memory = managed_memory
        self.context_bytes = context_bytes


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
    ) -> None:
        self.held_bytes = held_bytes  # allocations, and what contexts are charged
        self.contexts = contexts  # that live; a process tells at most 255
        self.busy_ns = busy_ns
        self.throttled_ns = throttled_ns
        self.launches = launches
        self.refusals = refusals
        self.balance_ns = balance_ns


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


def limits_page(
    gpus: Sequence[GpuLimits], driver_dir: str = GUEST_DRIVER, meter_copies: bool = False
) -> bytes:
    """The whole page, ready to be written. `meter_copies`: copies on the GPU are paced.

    Raises ValueError: more GPUs than a page holds, or a text that does not fit its field.
    """
    if len(gpus) > MAX_GPUS:
        raise ValueError(f"a container can have {MAX_GPUS} GPUs, not {len(gpus)}")
    page = struct.pack(
        code("limits"),
        LIMITS_MAGIC,
        ABI_VERSION,
        LIMITS_SIZE,
        len(gpus),
        0,
        text_field(driver_dir, 64),
        0,
        meter_copies,
        b"",
    )
    for gpu in gpus:
        page += struct.pack(
            code("limits_gpu"),
            text_field(gpu.uuid, 48),
            gpu.memory_bytes,
            gpu.core_percent,
            gpu.core_ceiling_percent,
            gpu.policy,
            gpu.rate_ppm,
            gpu.weight,
            b"",
            gpu.managed_memory,
            gpu.context_bytes,
        )
    return page.ljust(LIMITS_SIZE, b"\0")


def text_field(text: str, size: int) -> bytes:
    encoded = text.encode()
    # The shim wants the NUL inside the field.
    if len(encoded) >= size or b"\0" in encoded:
        raise ValueError(f"{text!r} does not fit in {size - 1} bytes")
    return encoded


def empty_usage_page() -> bytes:
    """The header alone: the rest of the file, up to USAGE_SIZE, is zero."""
    return struct.pack(code("usage"), USAGE_MAGIC, ABI_VERSION, USAGE_SIZE, 0, 0, 0, b"", b"")


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
    head = struct.unpack_from(code("limits"), page)
    gpus = []
    for index in range(min(head[3], MAX_GPUS)):
        entry = struct.unpack_from(
            code("limits_gpu"), page, LIMITS_HEAD_SIZE + index * LIMITS_GPU_SIZE
        )
        gpus.append(LimitsGpu(text_of(entry[0]), *entry[1:7], *entry[-2:]))
    return Limits(text_of(head[5]), head[4], head[6], gpus, head[7] != 0)


def live_slots(fd: int) -> frozenset[int]:
    """The slots whose process lives, by the locks on the usage file that FD is open on.

    The kernel drops a process's lock when it dies, so this is true at once, in any pid namespace.
    Raises OSError: FD is no file, or one that takes no locks.
    """
    import fcntl  # here, because the start path reads no usage

    live = set()
    for slot in range(MAX_PROCESSES):
        # struct flock: l_type, l_whence, l_start, l_len, l_pid
        asked = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, USAGE_LOCK_BASE + slot, 1, 0)
        answer = fcntl.fcntl(fd, F_OFD_GETLK, asked)
        if struct.unpack_from("h", answer)[0] != fcntl.F_UNLCK:
            live.add(slot)
    return frozenset(live)


def read_usage(page: bytes, live: frozenset[int] | None = None) -> Usage:
    """Any content of the right head gives an answer: the numbers are the container's own word.

    `held_bytes` of a GPU is the sum over all slots. One whose process has died since counts until
    the container's next call clears it; with `live`, which live_slots answers, it does not count.
    Raises ValueError: not a usage page.
    """
    head = checked_head(page, "usage", USAGE_MAGIC, USAGE_SIZE)
    held, contexts = [0] * MAX_GPUS, [0] * MAX_GPUS
    processes = []
    slots_at = USAGE_HEAD_SIZE + MAX_GPUS * USAGE_GPU_SIZE
    for index in range(min(head[3], MAX_PROCESSES)):
        if live is not None and index not in live:
            continue
        slot = struct.unpack_from(code("usage_slot"), page, slots_at + index * USAGE_SLOT_SIZE)
        bytes_held = slot[5 : 5 + MAX_GPUS]
        busy = slot[5 + MAX_GPUS : 5 + 2 * MAX_GPUS]
        live_contexts = slot[5 + 2 * MAX_GPUS : 5 + 3 * MAX_GPUS]
        for gpu in range(MAX_GPUS):
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
    for index in range(MAX_GPUS):
        entry = struct.unpack_from(
            code("usage_gpu"), page, USAGE_HEAD_SIZE + index * USAGE_GPU_SIZE
        )
        balance, _, busy_ns, throttled_ns, launches, refusals = entry[:6]
        gpus.append(
            UsageGpu(
                held[index], busy_ns, throttled_ns, launches, refusals, balance, contexts[index]
            )
        )
    newer_symbols, tables, ids = struct.unpack_from("=II64s", page, 16)
    known = [ids[at * 16 : at * 16 + 16].hex() for at in range(min(tables, 4))]
    return Usage(gpus, processes, newer_symbols, tuple(known))
