"""Reads the events that events.record has written, those of before and those that come."""

from __future__ import annotations

import os

from ..model import jsontree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

_TEXTS = ("from", "kind", "allocation", "text")


class _File:
    """One file of events, open: it may have got another name since."""

    def __init__(self, fd: int) -> None:
        self.fd, self._half = fd, b""

    def new(self) -> Iterator[dict[str, Any]]:
        while chunk := os.read(self.fd, 1 << 20):
            *lines, self._half = (self._half + chunk).split(b"\n")
            for line in lines:
                event = _parse(line)
                if event:
                    yield event


class Reader:
    """`new` gives each event once, though the file be turned meanwhile."""

    def __init__(self, path: str) -> None:
        self._path = path
        self._files: list[_File] = []  # the eldest first

    def new(self) -> Iterator[dict[str, Any]]:
        """Those since the last call, as they were written. Raises OSError: not to be read."""
        # The present one first: if it is turned now, it is met twice and not missed.
        found = [fd for fd in (self._open(""), self._open(".1")) if fd is not None]
        for fd in reversed(found):
            if any(os.path.sameopenfile(fd, known.fd) for known in self._files):
                os.close(fd)
            else:
                self._files.append(_File(fd))
        for file in self._files:
            yield from file.new()
        # Both stay open, so that no other can have their inodes.
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
    """None: half a line, or no event."""
    try:
        event = jsontree.loads(line.decode())
    except ValueError:
        return None
    if not isinstance(event, dict) or not isinstance(event.get("time"), (int, float)):
        return None
    return event if all(isinstance(event.get(key), str) for key in _TEXTS) else None
