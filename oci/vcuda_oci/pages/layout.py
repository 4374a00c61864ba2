"""Layout of the limits and usage pages, which host and shim share; the same as vcuda_abi.h.

The host writes `limits`, which is read-only in the container. `usage` begins empty, and the shim
writes it. `page_reader` reads both.
"""

from __future__ import annotations

import struct

from ..model.names import GUEST_DRIVER

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ABI_VERSION = 1
LIMITS_MAGIC = 0x4D494C56
USAGE_MAGIC = 0x47535556
MAX_GPUS = 16
MAX_PROCESSES = 256
USAGE_LOCK_BASE = 0x100000

# `turn` to `turn_waited_ns` before the turn keeper writes them.
_NO_TURN = (0, 0, 0, 0, 0)

POLICY_FIXED = 0
POLICY_ELASTIC = 1
POLICY_WEIGHTED = 2
POLICY_BEST_EFFORT = 3

LATENCY_NORMAL = 0
LATENCY_LOW = 1

# `suspended`
AWAKE = 0
SUSPENDED = 1  # by order: calls wait until the host resumes the container
UNTIL_CALL = 2  # because it was idle, or for another's turn: a call asks to be resumed

# `unsaved`: of the entries from here on, a bit for each slot
UNSAVED_MANAGED = 0  # its process holds managed memory
UNSAVED_IPC = 8  # it has opened memory of another process

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
        ("suspended", "I"),
        ("calls_ask", "I"),
        ("suspensions", "I"),
        ("reserved", "16s"),
    ),
    "limits_gpu": (
        ("uuid", "48s"),
        ("memory_bytes", "Q"),
        ("core_percent", "I"),
        ("core_ceiling_percent", "I"),
        ("policy", "I"),
        ("rate_ppm", "I"),
        ("weight", "I"),
        ("turn", "I"),
        ("turn_until_ns", "Q"),
        ("turn_lease_ns", "Q"),
        ("turn_held_ns", "Q"),
        ("turn_waited_ns", "Q"),
        ("latency", "B"),
        ("trim_asked", "B"),
        ("hidden_ms", "H"),
        ("managed_memory", "B"),
        ("mps_percent", "B"),
        ("reserved", "2s"),
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
        ("resume_asked", "I"),
        ("off_gpu", "32s"),
        ("reserved", "4s"),
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
        ("overrun_ns", "Q"),
        ("bell", "I"),
        ("work_begun", "I"),
        ("busy_until_ns", "Q"),
        ("turn_taken", "I"),
        ("switch_ns", "I"),
        ("room_asked", "I"),
        ("unsaved", "I"),
    ),
    "usage_slot": (
        ("pid", "I"),
        ("generation", "I"),
        ("start_time", "Q"),
        ("asking", "I"),
        ("calls_inside", "I"),
        ("held_bytes", f"{MAX_GPUS}Q"),
        ("busy_ns", f"{MAX_GPUS}Q"),
        ("contexts", f"{MAX_GPUS}B"),
        ("thread_asking", "4I"),
        ("turn_marks", "Q"),
    ),
}


def code(table: str) -> str:
    """The struct code of a whole table. "=": native byte order, no padding."""
    return "=" + "".join(field_code for _, field_code in FIELDS[table])


LIMITS_HEAD_SIZE = struct.calcsize(code("limits"))
LIMITS_GPU_SIZE = struct.calcsize(code("limits_gpu"))
USAGE_HEAD_SIZE = struct.calcsize(code("usage"))
USAGE_GPU_SIZE = struct.calcsize(code("usage_gpu"))
USAGE_SLOT_SIZE = struct.calcsize(code("usage_slot"))
LIMITS_SIZE = LIMITS_HEAD_SIZE + MAX_GPUS * LIMITS_GPU_SIZE
USAGE_SIZE = USAGE_HEAD_SIZE + MAX_GPUS * USAGE_GPU_SIZE + MAX_PROCESSES * USAGE_SLOT_SIZE


def offsets() -> Iterator[tuple[str, int, int]]:
    """Yield (table.field, offset, size) of every field, as build/abi_print prints them."""
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
    """One GPU's entry of a limits page."""

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
        latency: int = LATENCY_NORMAL,
        mps_percent: int = 0,
    ) -> None:
        self.uuid = uuid  # as NVML prints it: "GPU-5f1c…"
        self.memory_bytes = memory_bytes
        self.core_percent = core_percent  # 1..100; 100: no limit of GPU time
        self.core_ceiling_percent = core_ceiling_percent
        self.policy = policy  # POLICY_…
        self.rate_ppm = rate_ppm  # the grant: GPU time in parts per million
        self.weight = weight
        self.managed_memory = managed_memory  # 1: cuMemAlloc returns managed memory
        self.context_bytes = context_bytes  # charged for each context
        self.latency = latency  # LATENCY_…
        self.mps_percent = mps_percent  # 1..100 under MPS; 0: not under MPS
        # The turn keeper's, or for it: limits_page does not write these.
        self.turn = self.turn_held_ns = self.turn_waited_ns = self.hidden_ms = 0


def limits_page(
    gpus: Sequence[LimitsGpu],
    meter_copies: bool = False,
    calls_ask: bool = False,
    suspended: int = AWAKE,
) -> bytes:
    """The bytes of a limits page.

    meter_copies: the shim limits copies on the GPU too. calls_ask: each CUDA call looks whether the
    container is suspended, so that the host may suspend it while it is idle. suspended: AWAKE,
    SUSPENDED or UNTIL_CALL.

    Raises ValueError: more GPUs than a page can hold, or a text that does not fit its field.
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
        text_field(GUEST_DRIVER, 64),
        0,
        meter_copies,
        suspended,
        calls_ask,
        0,
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
            *_NO_TURN,
            gpu.latency,
            0,
            0,
            gpu.managed_memory,
            gpu.mps_percent,
            b"",
            gpu.context_bytes,
        )
    return page.ljust(LIMITS_SIZE, b"\0")


def text_field(text: str, size: int) -> bytes:
    encoded = text.encode()
    # The field must contain the NUL too.
    if len(encoded) >= size or b"\0" in encoded:
        raise ValueError(f"{text!r} does not fit in {size - 1} bytes")
    return encoded


def empty_usage_page() -> bytes:
    """The header of a usage page; the rest of the file, up to USAGE_SIZE, is zero."""
    head = USAGE_MAGIC, ABI_VERSION, USAGE_SIZE
    return struct.pack(code("usage"), *head, 0, 0, 0, b"", 0, b"", b"")
