"""Read the events that events.record has written, and follow those to come."""

from __future__ import annotations

import os
from collections.abc import Iterator
from typing import Any

from ..model import jsontree

_TEXTS = ("from", "kind", "allocation", "text")


class _File:
    """An open file of events; it may be renamed meanwhile."""

    def __init__(self, fd: int) -> None:
        self.fd, self._incomplete = fd, b""

    def new(self) -> Iterator[dict[str, Any]]:
        while chunk := os.read(self.fd, 1 << 20):
            *lines, self._incomplete = (self._incomplete + chunk).split(b"\n")
            for line in lines:
                event = _parse(line)
                if event:
                    yield event


class Reader:
    """Yields each event once, also across rotations of the file."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[_File] = []  # the oldest first

    def new(self) -> Iterator[dict[str, Any]]:
        """The events since the last call, oldest first. Raises OSError: cannot be read."""
        # Open the current file first: if it is rotated in between, it is opened twice, not missed.
        found = [fd for fd in (self._open(""), self._open(".1")) if fd is not None]
        for fd in reversed(found):
            if any(os.path.sameopenfile(fd, known.fd) for known in self._files):
                os.close(fd)
            else:
                self._files.append(_File(fd))
        for file in self._files:
            yield from file.new()
        # The last two stay open, so that their inodes cannot be reused.
        while len(self._files) > 2:
            os.close(self._files.pop(0).fd)

    def close(self) -> None:
        while self._files:
            os.close(self._files.pop().fd)

    def _open(self, end: str) -> int | None:
        try:
            flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
            return os.open(self._path + end, flags)
        except FileNotFoundError:
            return None


def _parse(line: bytes) -> dict[str, Any] | None:
    """Parse a line; None: not a whole event."""
    try:
        event = jsontree.loads(line.decode())
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("time"), (int, float)):
        return None
    return event if all(isinstance(event.get(key), str) for key in _TEXTS) else None
