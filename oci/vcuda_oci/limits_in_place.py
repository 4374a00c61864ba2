"""Changes of a limits page that containers have mapped: in place, by one writer at a time.

The arbiter writes its grants so, `vcuda limit` a share that has changed. Who writes moves the
page's sequence, so another who has it open sees that it is not as he left it.
"""

from __future__ import annotations

import errno
import fcntl
import os
import struct
import time

from . import pages, pages_read
from .claim import page_entry

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .allocation import GpuShare

# Not the page itself: who may read a page could hold a lock on it.
LOCK = "pages.lock"
_PAUSE_SECONDS = 0.001
_AT = {name: at for name, at, _ in pages.offsets()}


class Turn:
    """The right to write pages below `state_dir`; as a context, whether it was had in `seconds`.

    Raises OSError: the lock cannot be opened.
    """

    def __init__(self, state_dir: str, seconds: float = 0) -> None:
        self._path, self._seconds = f"{state_dir}/{LOCK}", seconds

    def __enter__(self) -> bool:
        flags = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC
        self._fd = os.open(self._path, flags, 0o600)
        deadline = time.monotonic() + self._seconds
        while True:
            try:
                fcntl.flock(self._fd, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return True
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    return False
                time.sleep(_PAUSE_SECONDS)

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


class OpenPage:
    """A limits page, open to be written by whoever has the turn."""

    def __init__(self, path: str, shares: Sequence[GpuShare]) -> None:
        """Raises OSError, or ValueError: it is no page, or not of these GPUs."""
        self._fd = os.open(path, os.O_RDWR | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            page = pages_read.read_limits(os.pread(self._fd, pages.LIMITS_SIZE, 0))
            if [gpu.uuid for gpu in page.gpus] != [share.uuid for share in shares]:
                raise ValueError("the limits page names other GPUs than the record")
            self._sequence = page.sequence
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def begin(self) -> None:
        """Raises OSError, also where another wrote since this was opened: ESTALE."""
        self._check()
        # What a killed writer left odd becomes even with the next write.
        self._sequence |= 1
        self.put("limits.sequence", "=Q", self._sequence)

    def put(self, field: str, code: str, value: int, gpu: int = 0) -> None:
        """One field; gpu: of which entry it is. Raises OSError."""
        entry = _AT["limits.gpu"] + gpu * pages.LIMITS_GPU_SIZE
        at = _AT[field] + (entry if field.startswith("limits_gpu.") else 0)
        os.pwrite(self._fd, struct.pack(code, value), at)

    def end(self) -> None:
        self._sequence += 1
        self.put("limits.sequence", "=Q", self._sequence)

    def renew(self, until_ns: int) -> None:
        """The end alone of a grant whose rates stand: one aligned word, so a reader sees the old
        one or the new one, and needs no sequence. Raises OSError as `begin` does."""
        self._check()
        self.put("limits.rate_until_ns", "=Q", until_ns)

    def _check(self) -> None:
        if os.pread(self._fd, 8, _AT["limits.sequence"]) != struct.pack("=Q", self._sequence):
            raise OSError(errno.ESTALE, "the limits page was written by another")

    def write(self, shares: Sequence[GpuShare]) -> None:
        """What `shares` say, and no grant but what is reserved. Raises OSError."""
        self.begin()
        for gpu, share in enumerate(shares):
            entry = page_entry(share, 0)
            self.put("limits_gpu.memory_bytes", "=Q", entry.memory_bytes, gpu)
            for name in ("core_percent", "core_ceiling_percent", "policy", "weight", "rate_ppm"):
                self.put(f"limits_gpu.{name}", "=I", getattr(entry, name), gpu)
        # Last: no rate of before may count for ever.
        self.put("limits.rate_until_ns", "=Q", 0)
        self.end()
