"""What containers use of their shares, from the pages that their shims write.

A page is the guest's to write: it is read as bytes, never mapped, and what is not a whole page
counts as nothing known.
"""

from __future__ import annotations

import os
import time

from vcuda_oci import files, pages, pages_read

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from vcuda_oci.allocation import Allocation
    from vcuda_oci.ledger import Ledger

SAMPLE_SECONDS = 0.2


class Use:
    """Of one GPU's share. None: the page tells nothing."""

    def __init__(
        self,
        core_percent: float | None = None,
        memory_bytes: int | None = None,
        contexts: int | None = None,
        context_bytes: int | None = None,
    ) -> None:
        self.core_percent, self.memory_bytes = core_percent, memory_bytes
        self.contexts = contexts  # that live
        self.context_bytes = context_bytes  # of memory_bytes: what contexts are charged


def sample(ledger: Ledger, allocations: Sequence[Allocation], seconds: float) -> list[list[Use]]:
    """Each allocation's use of each of its GPUs, GPU time over the next `seconds`."""
    before = [_busy(ledger, allocation) for allocation in allocations]
    if any(before):
        time.sleep(seconds)
    return [
        _use(ledger, allocation, *earlier) if earlier else [Use() for _ in allocation.shares]
        for allocation, earlier in zip(allocations, before)
    ]


def held_bytes(ledger: Ledger, allocation: Allocation) -> list[int | None]:
    """What its processes hold of each GPU. None: the page tells nothing."""
    return [use.memory_bytes for use in _use(ledger, allocation, 0, [0] * pages.MAX_GPUS)]


def limits(ledger: Ledger, allocation: Allocation) -> Any:
    """The limits page as a JSON tree, or why it cannot be read."""
    try:
        page = _read_limits(ledger, allocation)
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    return {
        "driver_dir": page.driver_dir,
        "sequence": page.sequence,
        "meter_copies": page.meter_copies,
        "rate_until_ns": page.rate_until_ns,
        "gpus": [_fields(gpu) for gpu in page.gpus],
    }


def whole_page(ledger: Ledger, allocation: Allocation) -> Any:
    """The usage page as a JSON tree: live processes only; or why it cannot be read."""
    try:
        page = _read(ledger, allocation)
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    count = len(allocation.shares)
    gpus = [_fields(gpu) for gpu in page.gpus[:count]]
    for gpu, each in zip(gpus, _context_bytes(ledger, allocation)):
        gpu["context_bytes"] = _charged(gpu["contexts"], each)
    processes = [_fields(process) for process in page.processes]
    for process in processes:
        for key in ("held_bytes", "busy_ns", "contexts"):
            process[key] = list(process[key])[:count]
    return {"gpus": gpus, "processes": processes}


def _busy(ledger: Ledger, allocation: Allocation) -> tuple[float, list[int]] | None:
    """When, and each GPU's busy_ns."""
    try:
        page = _read(ledger, allocation)
    except (OSError, ValueError):
        return None
    return time.monotonic(), [gpu.busy_ns for gpu in page.gpus]


def _use(ledger: Ledger, allocation: Allocation, since: float, earlier: Sequence[int]) -> list[Use]:
    try:
        page = _read(ledger, allocation)
    except (OSError, ValueError):
        return [Use() for _ in allocation.shares]
    elapsed_ns = (time.monotonic() - since) * 1e9
    return [
        Use(
            100 * max(0, gpu.busy_ns - busy_before) / elapsed_ns,
            gpu.held_bytes,
            gpu.contexts,
            _charged(gpu.contexts, each),
        )
        for gpu, busy_before, each in zip(page.gpus, earlier, _context_bytes(ledger, allocation))
    ]


def _context_bytes(ledger: Ledger, allocation: Allocation) -> list[int | None]:
    """What each context is charged on each GPU of the allocation. None: the page tells nothing."""
    try:
        page = _read_limits(ledger, allocation)
    except (OSError, ValueError):
        return [None for _ in allocation.shares]
    return [gpu.context_bytes for gpu in page.gpus[: len(allocation.shares)]]


def _charged(contexts: int, each: int | None) -> int | None:
    return None if each is None else contexts * each


def _read_limits(ledger: Ledger, allocation: Allocation) -> pages_read.Limits:
    return pages_read.read_limits(files.read(_folder(ledger, allocation) + "/limits", 1 << 20))


def _read(ledger: Ledger, allocation: Allocation) -> pages_read.Usage:
    """The page with its live processes only. Raises OSError, ValueError."""
    path = _folder(ledger, allocation) + "/usage"
    fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    try:
        # Of a file that the guest made longer, to hide behind its size, the page is the beginning.
        page = os.pread(fd, pages.USAGE_SIZE, 0)
        return pages_read.read_usage(page, pages_read.live_slots(fd))
    finally:
        os.close(fd)


def _fields(entry: object) -> dict[str, Any]:
    return {name: getattr(entry, name) for name in type(entry).__slots__}  # type: ignore[attr-defined]


def _folder(ledger: Ledger, allocation: Allocation) -> str:
    return f"{ledger.containers}/{allocation.id}"
