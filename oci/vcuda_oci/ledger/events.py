"""What happened to allocations, in order: one file of JSON lines that every program appends to.

``<state-dir>/events.jsonl``; a line: {"time": seconds since 1970, "from": program, "kind",
"allocation": its id or "", "text"} and what else the kind tells: "container" is the engine's id of
it, "pod" "namespace/name/container", "seconds" how long it took, "times" how often it was so since
it was told last. On a tmpfs, so a reboot clears it.
"""

from __future__ import annotations

import os
import time

from ..model import jsontree, names

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from ..model.allocation import Allocation

NAME = "events.jsonl"
MOST_BYTES = 4 << 20  # of one file; the one before it is kept
_MOST_TEXT = 2000

CLAIMED, TAKEN_OVER, REFUSED = "claimed", "taken-over", "refused"
STOPPED, RELEASED = "stopped", "released"
LIMIT_CHANGED = "limit-changed"
DECIDED = "decided"
THROTTLED, OUT_OF_MEMORY, BYPASS_FOUND = "throttled", "out-of-memory", "bypass-found"
AGENT_STARTED, AGENT_ENDED = "agent-started", "agent-ended"
GPU_UNHEALTHY, GPU_HEALTHY = "gpu-unhealthy", "gpu-healthy"
NO_GPUS, UNCLAIMED = "no-gpus", "unclaimed"


def record(
    state_dir: str, program: str, kind: str, allocation: str, text: str, **more: Any
) -> None:
    """Append one event. Never raises: nothing fails because it could not be told."""
    event = {"time": time.time(), "from": program, "kind": kind, "allocation": allocation}
    event.update(text=text[:_MOST_TEXT], **more)
    try:
        path = f"{state_dir}/{NAME}"
        fd = _open(state_dir, path)
        try:
            # One write of one line: appended whole, whoever else appends.
            os.write(fd, (jsontree.dumps(event) + "\n").encode("utf-8", "replace"))
            if os.fstat(fd).st_size > MOST_BYTES:
                _turn(path, fd)
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError):
        pass


def record_health(state_dir: str, uuid: str, reason: str) -> None:
    """A GPU is no longer fit for new containers, and why; or, with "", it is again."""
    kind, text = GPU_UNHEALTHY, f"{uuid} is unhealthy: {reason}"
    if not reason:
        kind, text = GPU_HEALTHY, f"{uuid} is healthy again"
    record(state_dir, names.AGENT_PROGRAM, kind, "", text, gpu=uuid)


def about(
    container_id: str, pod: dict[str, str], engine: dict[str, str] | None = None
) -> dict[str, Any]:
    """What else is told of a container; pod, engine: as a record has them."""
    if not pod:
        return {"container": container_id, **({"engine": engine} if engine else {})}
    name = "/".join(pod.get(key, "") for key in ("namespace", "name", "container"))
    return {"container": container_id, "pod": name}


def of(allocation: Allocation) -> str:
    """What it holds, as its events say it."""
    return "; ".join(map(str, allocation.shares))


def read(state_dir: str, allocation: str = "") -> Iterator[dict[str, Any]]:
    """The events, oldest first; of one allocation if it is named. Half a line is passed over."""
    from .event_reader import Reader  # whoever records needs none of it

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
    except FileNotFoundError:  # the first that happens here may be a refusal
        os.makedirs(state_dir, 0o755, exist_ok=True)
        return os.open(path, flags, 0o640)


def _turn(path: str, fd: int) -> None:
    """Keep the full file as the one before; of two that find it full only one does."""
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)  # held: another does it, or the next event
    if os.path.samestat(os.fstat(fd), os.stat(path)):
        os.rename(path, path + ".1")
