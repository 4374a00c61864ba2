"""Kill the code, or let the disk be full, at the n-th change that the code makes."""

from __future__ import annotations

import errno
import os
import signal
from collections.abc import Callable
from typing import Any

# Every call by which `vcuda_oci` changes files.
CHANGES = (
    "open",
    "write",
    "pwrite",
    "fchmod",
    "posix_fallocate",
    "fsync",
    "rename",
    "unlink",
    "mkdir",
    "rmdir",
    "close",
)


NEEDS_SPACE = ("open", "write", "posix_fallocate", "fsync", "rename", "mkdir")


class Faults:
    """Makes the n-th change of this process fail."""

    def __init__(self, calls: tuple[str, ...], at: int, fault: Callable[[str, Any], None]) -> None:
        self.seen = 0
        self.originals = {name: getattr(os, name) for name in calls}
        for name, original in self.originals.items():
            setattr(os, name, self._wrapped(name, original, at, fault))

    def _wrapped(self, name: str, original: Any, at: int, fault: Any) -> Any:
        def wrapped(*arguments: Any, **options: Any) -> Any:
            creates = name == "mkdir" or (name == "open" and arguments[1] & os.O_CREAT)
            harmless = name in ("mkdir", "open") and not (
                creates and not os.path.exists(arguments[0])
            )
            if harmless:
                return original(*arguments, **options)
            self.seen += 1
            if self.seen == at:
                fault(name, arguments)
            return original(*arguments, **options)

        return wrapped

    def restore(self) -> None:
        for name, original in self.originals.items():
            setattr(os, name, original)


def killed_at(at: int, act: Callable[[], Any], calls: tuple[str, ...] = CHANGES) -> bool:
    """Run `act` in a child that dies by SIGKILL at its `at`-th change; False if `act` finished.

    A killed write has written half of its bytes. calls: which count as changes.
    """
    child = os.fork()
    if child == 0:
        status = 1
        try:
            half_write = os.write

            def die(name: str, arguments: Any) -> None:
                if name == "write":
                    half_write(arguments[0], arguments[1][: len(arguments[1]) // 2])
                os.kill(os.getpid(), signal.SIGKILL)

            Faults(calls, at, die)
            act()
            status = 0
        finally:
            os._exit(status)
    ended = os.waitpid(child, 0)[1]
    assert ended in (0, signal.SIGKILL), f"the child failed by itself at change {at}"
    return ended != 0


def without_space(at: int, act: Callable[[], Any]) -> tuple[bool, Any]:
    """Run `act` with ENOSPC at the `at`-th change that needs space.

    Returns whether that change was reached, and the result or the exception of `act`.
    """

    def refuse(name: str, arguments: Any) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), "somewhere")

    faults = Faults(NEEDS_SPACE, at, refuse)
    try:
        answer: Any = act()
    except Exception as error:
        answer = error
    finally:
        faults.restore()
    return faults.seen >= at, answer
