"""What happened to allocations, in order: one file of JSON lines that every program appends to.

``<state-dir>/events.jsonl``; a line: {"time": seconds since 1970, "from": program, "kind",
"allocation": its id or "", "text"} and what else the kind tells. On a tmpfs, so a reboot clears it.
"""

from __future__ import annotations

import os
import time

from . import files, jsontree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

NAME = "events.jsonl"
MOST_BYTES = 4 << 20  # of one file; the one before it is kept
_MOST_TEXT = 2000


def record(
    state_dir: str, program: str, kind: str, allocation: str, text: str, **more: Any
) -> None:
    """Append one event. Never raises: nothing fails because it could not be told."""
    event = {"time": time.time(), "from": program, "kind": kind, "allocation": allocation}
    event.update(text=text[:_MOST_TEXT], **more)
    try:
        path = f"{state_dir}/{NAME}"
        flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        fd = os.open(path, flags, 0o640)
        try:
            # One write of one line: appended whole, whoever else appends.
            os.write(fd, (jsontree.dumps(event) + "\n").encode("utf-8", "replace"))
            if os.fstat(fd).st_size > MOST_BYTES:
                _turn(path, fd)
        finally:
            os.close(fd)
    except (OSError, ValueError, TypeError):
        pass


def read(state_dir: str, allocation: str = "") -> Iterator[dict[str, Any]]:
    """The events, oldest first; of one allocation if it is named. Half a line is passed over."""
    for name in (NAME + ".1", NAME):
        try:
            lines = files.read(f"{state_dir}/{name}", 4 * MOST_BYTES).split(b"\n")
        except OSError:
            continue
        for line in lines:
            try:
                event = jsontree.loads(line.decode())
            except ValueError:
                continue
            if isinstance(event, dict) and allocation in ("", event.get("allocation")):
                yield event


def _turn(path: str, fd: int) -> None:
    """Keep the full file as the one before; of two that find it full only one does."""
    import fcntl

    fcntl.flock(fd, fcntl.LOCK_EX)
    if os.path.samestat(os.fstat(fd), os.stat(path)):
        os.rename(path, path + ".1")
