"""Write `suspended` in a limits page, and wake the calls that wait for it.

Only the process that holds the container's suspend lock writes it.
"""

from __future__ import annotations

import ctypes
import mmap
import os
import struct

from . import layout

_AT = {name: at for name, at, _ in layout.offsets()}
_SUSPENDED_AT, _SUSPENSIONS_AT = _AT["limits.suspended"], _AT["limits.suspensions"]
_WORD = struct.Struct("=I")

# Source: asm/unistd.h, linux/futex.h
_SYS_FUTEX = {"x86_64": 202, "aarch64": 98}
_FUTEX_WAKE = 1
_EVERY_WAITER = (1 << 31) - 1


def write(fd: int, state: int) -> None:
    """Write layout.AWAKE, SUSPENDED or UNTIL_CALL; fd: the page, open for reading and writing.

    The end of a suspension is counted before calls go on: the shim then charges no GPU time that it
    measured across it. A reading of the usage page after this call sees each call that did not see
    the new state. Raises OSError.
    """
    before, count = (_read(fd, at) for at in (_SUSPENDED_AT, _SUSPENSIONS_AT))
    if state == layout.AWAKE and before != layout.AWAKE:
        os.pwrite(fd, _WORD.pack((count + 1) % (1 << 32)), _SUSPENSIONS_AT)
    os.pwrite(fd, _WORD.pack(state), _SUSPENDED_AT)
    # Also where no call waits: FUTEX_WAKE is a full memory barrier, which the reading of
    # calls_inside needs behind the store.
    _wake(fd)


def _read(fd: int, at: int) -> int:
    data = os.pread(fd, _WORD.size, at)
    if len(data) < _WORD.size:
        raise OSError(22, "the limits page is too short")
    return int(_WORD.unpack(data)[0])


def _wake(fd: int) -> None:
    number = _SYS_FUTEX.get(os.uname().machine)
    if number is None:
        return  # its calls look again within 100 ms
    libc = ctypes.CDLL(None)
    with mmap.mmap(fd, layout.LIMITS_SIZE) as page:
        word = ctypes.c_uint32.from_buffer(page, _SUSPENDED_AT)
        libc.syscall(number, ctypes.byref(word), _FUTEX_WAKE, _EVERY_WAITER, None, None, 0)
        del word  # the page cannot be unmapped while it is referenced
