"""Ask a container's shim, in its limits page, to give back what its pools keep of a GPU."""

from __future__ import annotations

import os

from . import layout

_AT = {name: at for name, at, _ in layout.offsets()}
_FIRST = _AT["limits.gpu"] + _AT["limits_gpu.trim_asked"]


def ask(fd: int, gpu: int) -> None:
    """gpu: its index in the page. fd: the page, open for reading and writing. Raises OSError.

    The turn keeper asks too, without a lock: two at once are one, which the shim answers as well.
    """
    at = _FIRST + gpu * layout.LIMITS_GPU_SIZE
    before = os.pread(fd, 1, at)
    if before:
        os.pwrite(fd, bytes([(before[0] + 1) % 256]), at)
