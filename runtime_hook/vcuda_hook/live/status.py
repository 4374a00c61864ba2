"""The states of the containers that hold allocations, by their low-level runtimes."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Sequence
from typing import NamedTuple

from vcuda_oci.ledger import liveness
from vcuda_oci.model.allocation import Allocation

CLAIMING, GONE, NAMED, UNKNOWN = "claiming", "gone", "named", "unknown"


class Status(NamedTuple):
    """reason: why the state is UNKNOWN, else ""."""

    word: str
    reason: str = ""


def statuses(allocations: Sequence[Allocation]) -> list[Status]:
    """created, running, paused or stopped: the runtime's answer; suspending, suspended, waiting or
    resuming in the place of the first two: the record's. claiming or gone: the runtime does
    not know the container. named: a named slice that is not suspended. unknown: the runtime does
    not answer. All runtimes are asked at once.
    """
    asked: list[subprocess.Popen[bytes] | str] = []
    for allocation in allocations:
        if allocation.is_named_slice:
            asked.append("")
            continue
        try:
            process = subprocess.Popen(
                [*allocation.runtime, "state", allocation.container_id],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.PIPE,
                stderr=subprocess.PIPE,
            )
        except (OSError, ValueError) as error:  # not there, or invalid arguments
            asked.append(str(error))
        else:
            asked.append(process)
    answers = [each if isinstance(each, str) else each.communicate() for each in asked]
    return [_status(*pair) for pair in zip(allocations, answers)]


def _status(allocation: Allocation, answer: str | tuple[bytes, bytes]) -> Status:
    if allocation.is_named_slice:
        return Status(allocation.suspension.step if allocation.suspension else NAMED)
    if isinstance(answer, str):
        answer = b"", answer.encode(errors="replace")
    output, complaint = answer
    try:
        word = str(json.loads(output)["status"])
        is_up = word in ("created", "running")
        return Status(allocation.suspension.step if is_up and allocation.suspension else word)
    except (ValueError, KeyError, TypeError):
        pass
    if liveness.claimant_lives(allocation):
        return Status(CLAIMING)
    if liveness.says_unknown(complaint, allocation.container_id):
        return Status(GONE)
    last = complaint.decode(errors="replace").strip().rpartition("\n")[2]
    return Status(UNKNOWN, last or f"'{' '.join(allocation.runtime)} state' gave no answer")
