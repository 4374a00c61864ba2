"""Our locks: flock on a file that root alone can open, and never without a deadline.

Who can open a file or folder can hold a lock on it, so none of ours is on anything else.
"""

from __future__ import annotations

import fcntl
import os
import time

_LONGEST_PAUSE = 0.02


def acquire_beside(path: str, seconds: float) -> int:
    """An empty file beside the one that it will replace, by rename; its lock is the turn to do so.

    What a killed writer left there is taken over. Raises as `acquire` does.
    """
    deadline = time.monotonic() + seconds
    while True:
        fd = acquire(path, deadline - time.monotonic())
        try:
            if os.path.samestat(os.fstat(fd), os.lstat(path)):
                os.ftruncate(fd, 0)
                return fd
        except FileNotFoundError:
            pass  # the writer before has just renamed it
        except BaseException:
            os.close(fd)
            raise
        os.close(fd)


def acquire(path: str, seconds: float) -> int:
    """The descriptor that holds the lock; closed, the lock is free.

    Raises BlockingIOError: another had it for all of `seconds`; OSError: it cannot be opened.
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
