"""Files that this process keeps open, so that no other process can take a file lease on them.

While a file is open for writing the kernel gives no lease on it; while it is open for reading, no
write lease. To end an existing lease, a thread opens the file and waits.
"""

from __future__ import annotations

import errno
import os
import resource
import threading

from . import page_file

# Threads that wait for the end of a lease; further leases wait for the next call.
_MOST_WAITING = 64


class HeldFiles:
    """Open files by path; each is held until its path names another file or `drop` is called."""

    def __init__(self) -> None:
        self._open: dict[str, tuple[tuple[int, int], int]] = {}  # device and inode; descriptor
        self._waiting: set[str] = set()
        self._first_spare = _first_spare_descriptor()

    def hold(self, path: str, flags: int) -> bool:
        """Hold the file, opened with these flags. False: call again later, as a lease is being
        ended or the file cannot be opened."""
        try:
            known, _ = self._open.get(path, (None, -1))
            if known != page_file.identity(path) and path not in self._waiting:
                self._take(path, flags)
        except OSError:
            return False  # removed meanwhile, or no descriptor is free
        return path in self._open and path not in self._waiting

    def drop(self, path: str) -> None:
        _, fd = self._open.pop(path, (None, -1))
        if fd >= 0:
            os.close(fd)

    def descriptor(self, path: str) -> int:
        """The descriptor of a held file; -1: it is not held."""
        return self._open.get(path, (None, -1))[1]

    def paths(self) -> list[str]:
        return list(self._open)

    def _take(self, path: str, flags: int) -> None:
        try:
            self._keep(path, page_file.open_page(path, flags))
        except (BlockingIOError, PermissionError):  # leased, or frozen
            if len(self._waiting) < _MOST_WAITING:
                self._waiting.add(path)
                self._start_waiting(path, flags)

    def _start_waiting(self, path: str, flags: int) -> None:
        try:
            threading.Thread(target=self._wait, args=(path, flags), daemon=True).start()
        except RuntimeError:
            self._waiting.discard(path)  # no thread can be started: the next call tries again

    def _wait(self, path: str, flags: int) -> None:
        try:
            self._keep(path, page_file.open_without_lease(path, flags))
        except OSError:
            pass  # the next call tries again
        finally:
            self._waiting.discard(path)

    def _keep(self, path: str, fd: int) -> None:
        """Record an open file. Raises OSError and closes it where no descriptor would be left."""
        if fd >= self._first_spare:
            os.close(fd)
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        status = os.fstat(fd)
        before = self.descriptor(path)
        self._open[path] = (status.st_dev, status.st_ino), fd
        if before >= 0:
            os.close(before)


def _first_spare_descriptor() -> int:
    """Raise the limit of descriptors. Return the first one that checks and lease ends use."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    try:
        resource.setrlimit(resource.RLIMIT_NOFILE, (hard, hard))
        soft = hard
    except (OSError, ValueError):
        pass
    # A thread that ends a lease needs two descriptors.
    return soft - min(2 * _MOST_WAITING + 16, soft // 2)
