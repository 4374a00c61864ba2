"""What the low-level runtimes say of the containers that hold allocations."""

from __future__ import annotations

import json
import subprocess

from vcuda_oci import liveness

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcuda_oci.allocation import Allocation

CLAIMING, GONE, NAMED = "claiming", "gone", "named"


def statuses(allocations: Sequence[Allocation]) -> list[str]:
    """created, running, paused or stopped, as the runtime says; claiming or gone where it knows
    no such container; named where no container holds it. All are asked at once."""
    asked: list[subprocess.Popen[bytes] | None] = []
    for allocation in allocations:
        if allocation.is_named_slice:
            asked.append(None)
            continue
        try:
            process = subprocess.Popen(
                [*allocation.runtime, "state", allocation.container_id],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.DEVNULL,
            )
        except (OSError, ValueError):  # not there, or no words that a program could be given
            asked.append(None)
        else:
            asked.append(process)
    answers = [process.communicate()[0] if process else b"" for process in asked]
    return [_status(*pair) for pair in zip(allocations, answers)]


def _status(allocation: Allocation, answer: bytes) -> str:
    if allocation.is_named_slice:
        return NAMED
    try:
        return str(json.loads(answer)["status"])
    except (ValueError, KeyError, TypeError):
        pid, started = allocation.claimant
        return CLAIMING if liveness.start_time(pid) == started else GONE
