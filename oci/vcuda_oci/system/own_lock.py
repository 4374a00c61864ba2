"""Locks with a deadline: flock on a file that only root can open.

Any process that can open a file can lock it, so vcuda locks no file that others can open.
"""

from __future__ import annotations

import fcntl
import os
import time

from ..model.errors import VcudaError

_LONGEST_PAUSE = 0.02


class FolderLock:
    """The lock of a folder's only writer, which makes the folder too.

    path: of the file in the folder. mode: of a new folder. Entering raises VcudaError: not free
    within `seconds`, or it cannot be made.
    """

    def __init__(self, path: str, seconds: float, mode: int = 0o700) -> None:
        self._path, self._seconds, self._mode = path, seconds, mode

    def __enter__(self) -> FolderLock:
        try:
            os.makedirs(os.path.dirname(self._path), self._mode, exist_ok=True)
            self._fd = acquire(self._path, self._seconds)
        except BlockingIOError as error:
            what = f"another process has held the lock for {self._seconds:.0f} s"
            raise VcudaError(what, self._path, "find it with 'fuser' and end it") from error
        except OSError as error:
            what = f"cannot be locked: {error.strerror or error}"
            raise VcudaError(what, self._path, "run it as root") from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def acquire_beside(path: str, seconds: float) -> int:
    """Lock and empty the file `path`, which the caller writes and renames; return its descriptor.

    The lock lets one writer at a time replace the final file. A file that a killed writer left is
    reused. Raises as `acquire` does.
    """
    deadline = time.monotonic() + seconds
    while True:
        fd = acquire(path, deadline - time.monotonic())
        try:
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                os.ftruncate(fd, 0)
                return fd
        except FileNotFoundError:
            pass  # the previous writer has just renamed it
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def acquire(path: str, seconds: float) -> int:
    """Lock the file; return the descriptor that holds the lock until it is closed.

    Raises BlockingIOError: the lock was not free within `seconds`. OSError: `path` cannot be
    opened.
    """
    flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    fd = os.open(path, flags, 0o600)
    deadline = time.monotonic() + seconds
    pause = 0.0005
    while True:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
            return fd
        except OSError as error:
            if not isinstance(error, BlockingIOError) or time.monotonic() >= deadline:
                os.close(fd)
                raise
        time.sleep(pause)
        pause = min(pause * 1.5, _LONGEST_PAUSE)
