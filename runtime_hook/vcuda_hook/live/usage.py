"""Containers' use of their shares, from the pages that their shims write.

The guest can write its page: it is read as bytes, never mapped, and an incomplete page counts as
unknown.
"""

from __future__ import annotations

import os
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.pages import layout, page_reader

SAMPLE_SECONDS = 0.2


class Sample(NamedTuple):
    """A sample of one container's pages at `at_ns` (CLOCK_MONOTONIC).

    context_bytes: charge for a context on each GPU; None: the limits cannot be read. file: the
    page's inode; a restarted container has a new page. processes: the running ones.
    """

    at_ns: int
    file: int
    gpus: Sequence[page_reader.UsageGpu]
    context_bytes: Sequence[int | None]
    processes: Sequence[page_reader.UsageProcess] = ()


class Use(NamedTuple):
    """The use of one GPU's share. counters: the page's figures; None: it has none.

    core_percent, waited_percent: part of the time since the earlier sample in which it used the
    GPU, and in which its launches waited. None: unknown; below 0: the container has rewritten its
    page.
    """

    core_percent: float | None = None
    counters: page_reader.UsageGpu | None = None
    context_bytes: int | None = None  # part of counters.held_bytes: the charge for contexts
    waited_percent: float | None = None


class ProcessUse(NamedTuple):
    """A process's use of one GPU, as it reports it. pid_inside: in its own pid namespace.
    core_percent: as of Use, but at most 100 and never below 0.
    """

    pid_inside: int
    core_percent: float | None
    memory_bytes: int


def measure(ledger: Ledger, allocations: Sequence[Allocation], seconds: float) -> list[list[Use]]:
    """Each allocation's use of each of its GPUs, GPU time over the next `seconds`."""
    before = [take_sample(ledger, allocation) for allocation in allocations]
    if any(before):
        time.sleep(seconds)
    return [
        between(allocation, earlier, take_sample(ledger, allocation) if earlier else None)
        for allocation, earlier in zip(allocations, before)
    ]


def take_sample(
    ledger: Ledger, allocation: Allocation, before: Sample | None = None
) -> Sample | None:
    """Take a sample; None: the page cannot be read. before: the previous sample; of the same page
    the charge for contexts has not changed."""
    try:
        file, page = _read(ledger, allocation)
    except (OSError, ValueError):
        return None
    now = time.monotonic_ns()
    if before and before.file == file and None not in before.context_bytes:
        return Sample(now, file, page.gpus, before.context_bytes, page.processes)
    charges = _context_bytes(ledger, allocation)
    return Sample(now, file, page.gpus, charges, page.processes)


def between(allocation: Allocation, earlier: Sample | None, later: Sample | None) -> list[Use]:
    """The use of each share: GPU time between two samples, other figures from the later one."""
    if later is None:
        return [Use() for _ in allocation.shares]
    uses = [
        Use(None, gpu, _charged(gpu.contexts, each))
        for gpu, each in zip(later.gpus, later.context_bytes)
    ]
    if not earlier or earlier.file != later.file or earlier.at_ns >= later.at_ns:
        return uses
    part = 100 / (later.at_ns - earlier.at_ns)
    return [
        use._replace(
            core_percent=(now.busy_ns - before.busy_ns) * part,
            waited_percent=(now.throttled_ns - before.throttled_ns) * part,
        )
        for use, now, before in zip(uses, later.gpus, earlier.gpus)
    ]


def processes_between(earlier: Sample | None, later: Sample | None, at: int) -> list[ProcessUse]:
    """The processes' use of the container's GPU number `at`, the most memory first."""
    if later is None:
        return []
    same = earlier if earlier and earlier.file == later.file else None
    before = {_key(each): each.busy_ns[at] for each in same.processes} if same else {}
    passed = later.at_ns - same.at_ns if same else 0
    found = [
        ProcessUse(
            each.pid,
            percent_of(before.get(_key(each)), each.busy_ns[at], passed),
            each.held_bytes[at],
        )
        for each in later.processes
    ]
    return sorted(found, key=lambda each: (-each.memory_bytes, each.pid_inside))


def percent_of(before_ns: int | None, now_ns: int, passed_ns: int) -> float | None:
    """A process's part of the time that passed between two readings of its counter; None: unknown,
    or the container has rewritten its page.
    """
    if before_ns is None or passed_ns <= 0 or now_ns < before_ns:
        return None
    # Long kernels are counted when they end.
    return min(100.0, 100 * (now_ns - before_ns) / passed_ns)


def _key(process: page_reader.UsageProcess) -> tuple[int, int, int]:
    """A slot is used again, by the next generation."""
    return process.slot, process.generation, process.pid


def page_of(ledger: Ledger, allocation: Allocation) -> page_reader.Usage | None:
    """The page with running processes only; None: it cannot be read."""
    try:
        return _read(ledger, allocation)[1]
    except (OSError, ValueError):
        return None


def limits(ledger: Ledger, allocation: Allocation) -> Any:
    """The limits page as a JSON tree, or the reason why it cannot be read."""
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
    """The usage page with running processes only, as a JSON tree; or the reason why it cannot be
    read.
    """
    try:
        _, page = _read(ledger, allocation)
    except (OSError, ValueError) as error:
        return {"error": str(error)}
    gpus = [_fields(gpu) for gpu in page.gpus]
    for gpu, each in zip(gpus, _context_bytes(ledger, allocation)):
        gpu["context_bytes"] = _charged(gpu["contexts"], each)
    processes = [_fields(process) for process in page.processes]
    for process in processes:
        for key in ("held_bytes", "busy_ns", "contexts"):
            process[key] = list(process[key])
    return {"gpus": gpus, "processes": processes}


def _context_bytes(ledger: Ledger, allocation: Allocation) -> list[int | None]:
    """The charge for each context on each GPU of the allocation. None: the page has no figures."""
    try:
        page = _read_limits(ledger, allocation)
    except (OSError, ValueError):
        return [None for _ in allocation.shares]
    return [gpu.context_bytes for gpu in page.gpus[: len(allocation.shares)]]


def _charged(contexts: int, each: int | None) -> int | None:
    return None if each is None else contexts * each


def _read_limits(ledger: Ledger, allocation: Allocation) -> page_reader.Limits:
    path = _folder(ledger, allocation) + "/limits"
    return page_reader.read_limits(page_file.read_page(path, layout.LIMITS_SIZE))


def _read(ledger: Ledger, allocation: Allocation) -> tuple[int, page_reader.Usage]:
    """The page's inode, and the page with running processes only. Raises OSError, ValueError."""
    path = _folder(ledger, allocation) + "/usage"
    fd = page_file.open_page(path, os.O_RDONLY)
    try:
        # If the guest has made the file longer, the page is its beginning.
        page = os.pread(fd, layout.USAGE_SIZE, 0)
        live = page_reader.live_slots(fd, page_reader.slots_used(page))
        return os.fstat(fd).st_ino, page_reader.read_usage(page, live, len(allocation.shares))
    finally:
        os.close(fd)


def _fields(entry: object) -> dict[str, Any]:
    return dict(sorted(entry.__dict__.items()))


def _folder(ledger: Ledger, allocation: Allocation) -> str:
    return f"{ledger.containers}/{allocation.id}"
