"""The event log: a file of JSON lines, ``<state-dir>/events.jsonl``, that all programs append to.

A line has "time" (seconds since 1970), "from" (program), "kind", "allocation" (its id or "") and
"text". Some kinds have more: "container" (the engine's id), "pod" ("namespace/name/container"),
"seconds" (duration), "times" (repetitions since the last such event), "gpu" (its UUID). The file is
on a tmpfs, so a reboot removes it.
"""

from __future__ import annotations

import fcntl
import os
import time

from ..model import jsontree, names
from ..model.allocation import Allocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NAME = "events.jsonl"
MOST_BYTES = 4 << 20  # a larger file is rotated; one older file is retained
_MOST_TEXT = 2000

CLAIMED, TAKEN_OVER, REFUSED = "claimed", "taken-over", "refused"
STOPPED, RELEASED = "stopped", "released"
LIMIT_CHANGED = "limit-changed"
SUSPENDED, RESUMED = "suspended", "resumed"
SUSPEND_FAILED, LOST = "suspend-failed", "lost"
DECIDED = "decided"
THROTTLED, OUT_OF_MEMORY, BYPASS_FOUND = "throttled", "out-of-memory", "bypass-found"
MPS_ENDED = "mps-ended"
TURN_OVERRUN = "turn-overrun"  # libvcuda/turns/tenant/doubt.c writes it
AGENT_STARTED, AGENT_ENDED = "agent-started", "agent-ended"
GPU_UNHEALTHY, GPU_HEALTHY = "gpu-unhealthy", "gpu-healthy"
GPU_DRAINED, GPU_UNDRAINED = "gpu-drained", "gpu-undrained"
NO_GPUS, UNCLAIMED = "no-gpus", "unclaimed"


def record(
    state_dir: str, program: str, kind: str, allocation: str, text: str, **more: Any
) -> None:
    """Append one event. Never raises: no work may fail because its event cannot be recorded."""
    event = {"time": time.time(), "from": program, "kind": kind, "allocation": allocation}
    event.update(text=text[:_MOST_TEXT], **more)
    try:
        path = f"{state_dir}/{NAME}"
        fd = _open(state_dir, path)
        try:
            # One write appends the whole line, also beside other writers.
            os.write(fd, (jsontree.dumps(event) + "\n").encode("utf-8", "replace"))
            if os.fstat(fd).st_size > MOST_BYTES:
                _rotate(path, fd)
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError):
        pass


def record_health(state_dir: str, uuid: str, reason: str) -> None:
    """Record that a GPU became unhealthy. reason: "": it became healthy again."""
    kind, text = GPU_UNHEALTHY, f"{uuid} is unhealthy: {reason}"
    if not reason:
        kind, text = GPU_HEALTHY, f"{uuid} is healthy again"
    record(state_dir, names.AGENT_PROGRAM, kind, "", text, gpu=uuid)


def about(
    container_id: str, pod: dict[str, str], engine: dict[str, str] | None = None
) -> dict[str, Any]:
    """The event fields that identify a container. pod, engine: as in a record."""
    if not pod:
        return {"container": container_id, **({"engine": engine} if engine else {})}
    name = "/".join(pod.get(key, "") for key in ("namespace", "name", "container"))
    return {"container": container_id, "pod": name}


def of(allocation: Allocation) -> str:
    """The allocation's shares, for the text of its events."""
    shares = "; ".join(map(str, allocation.shares))
    if not allocation.isolation:
        return shares
    from ..model import fence  # only for a container with a fence of its own

    word, line = fence.of(allocation.isolation, 100, None)
    if allocation.partition:
        line = fence.with_partition(line)
    return f"{shares}; {word}: {line}"


def read(state_dir: str, allocation: str = "") -> Iterator[dict[str, Any]]:
    """The events, oldest first. allocation: id; "": all. Incomplete lines are skipped."""
    from .event_reader import Reader  # late: writers of events do not need it

    reader = Reader(f"{state_dir}/{NAME}")
    try:
        for event in reader.new():
            if allocation in ("", event["allocation"]):
                yield event
    finally:
        reader.close()


def _open(state_dir: str, path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o640)
    except FileNotFoundError:  # a refusal may come before any claim has made the folder
        os.makedirs(state_dir, 0o755, exist_ok=True)
        return os.open(path, flags, 0o640)


def _rotate(path: str, fd: int) -> None:
    """Rename the full file. Raises OSError: another process rotates it."""
    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
    if os.path.samestat(os.fstat(fd), os.stat(path)):
        os.rename(path, path + ".1")
