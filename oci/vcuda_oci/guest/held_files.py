"""Files that this process keeps open, so that no other process can take a file lease on them.

While a file is open for writing the kernel gives no lease on it; while it is open for reading, no
write lease. A lease that is there already is ended by an open that waits for it, in a thread.
"""

from __future__ import annotations

import os
import resource
import threading

from . import page_file

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

# Threads that wait for the end of a lease; further leases wait for the next call.
_MOST_WAITING = 64


class HeldFiles:
    def __init__(self) -> None:
        self._open: dict[tuple[int, int], int] = {}  # descriptors by device and inode
        self._waiting: set[tuple[int, int]] = set()
        _raise_limit()

    def hold(self, wanted: Mapping[str, int]) -> None:
        """Hold the files of these paths, opened with these flags, and no others.

        One that cannot be opened is tried again with the next call.
        """
        found = set()
        for path, flags in wanted.items():
            try:
                key = page_file.identity(path)
                found.add(key)
                if key not in self._open and key not in self._waiting:
                    self._take(path, flags, key)
            except OSError:
                continue  # removed meanwhile, or no descriptor is free
        for key in set(self._open) - found:
            os.close(self._open.pop(key))

    def descriptor(self, path: str) -> int | None:
        """That of a file that is held. Raises OSError: there is no such path."""
        return self._open.get(page_file.identity(path))

    def _take(self, path: str, flags: int, key: tuple[int, int]) -> None:
        try:
            self._keep(page_file.open_page(path, flags))
        except (BlockingIOError, PermissionError):  # leased, or frozen
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.add(key)
                self._start_waiting(path, flags, key)

    def _start_waiting(self, path: str, flags: int, key: tuple[int, int]) -> None:
        try:
            threading.Thread(target=self._wait, args=(path, flags, key), daemon=True).start()
        except RuntimeError:
            self._waiting.discard(key)  # no thread can be had: the next call

    def _wait(self, path: str, flags: int, key: tuple[int, int]) -> None:
        try:
            self._keep(page_file.open_without_lease(path, flags))
        except OSError:
            pass  # the next call tries again
        finally:
            self._waiting.discard(key)

    def _keep(self, fd: int) -> None:
        """The path may name another file than when its identity was read."""
        status = os.fstat(fd)
        if self._open.setdefault((status.st_dev, status.st_ino), fd) != fd:
            os.close(fd)


def _raise_limit() -> None:
    _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
    except (OSError, ValueError):
        pass
