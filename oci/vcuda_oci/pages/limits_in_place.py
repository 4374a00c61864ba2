"""Changes of a limits page that containers have mapped: in place, by one writer at a time.

The arbiter writes its grants so, `vcuda limit` a share that has changed. Who writes moves the
page's sequence, so another who has it open sees that it is not as he left it.
"""

from __future__ import annotations

import errno
import os
import struct

from ..guest import page_file
from ..system import own_lock
from . import layout, limits, page_reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.allocation import GpuShare

# Not the page itself: who may read a page could hold a lock on it.
LOCK = "pages.lock"
_AT = {name: at for name, at, _ in layout.offsets()}
# Of a field: where it begins, how far it is from one GPU's to the next one's, and its form.
_PLACES = {
    f"{table}.{name}": (
        _AT[f"{table}.{name}"] + (_AT["limits.gpu"] if table == "limits_gpu" else 0),
        layout.LIMITS_GPU_SIZE if table == "limits_gpu" else 0,
        struct.Struct("=" + code),
    )
    for table in ("limits", "limits_gpu")
    for name, code in layout.FIELDS[table]
}
_SEQUENCE_AT, _, _SEQUENCE = _PLACES["limits.sequence"]


class Turn:
    """The right to write pages below `state_dir`; as a context, whether it was had in `seconds`.

    Raises OSError: the lock cannot be opened.
    """

    def __init__(self, state_dir: str, seconds: float = 0) -> None:
        self._path, self._seconds = f"{state_dir}/{LOCK}", seconds

    def __enter__(self) -> bool:
        self._fd = -1
        try:
            self._fd = own_lock.acquire(self._path, self._seconds)
        except BlockingIOError:
            return False
        return True

    def __exit__(self, *_: object) -> None:
        if self._fd >= 0:
            os.close(self._fd)


class OpenPage:
    """A limits page, open to be written by whoever has the turn."""

    def __init__(self, path: str, shares: Sequence[GpuShare]) -> None:
        """Raises OSError, or ValueError: it is no page, or not of these GPUs."""
        self._fd = page_file.open_page(path, os.O_RDWR)
        try:
            page = page_reader.read_limits(os.pread(self._fd, layout.LIMITS_SIZE, 0))
            if [gpu.uuid for gpu in page.gpus] != [share.uuid for share in shares]:
                raise ValueError("the limits page names other GPUs than the record")
            self._sequence = page.sequence
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def check(self) -> None:
        """Raises OSError, also where another wrote since this was opened: ESTALE.

        That is all that is needed before a put of one aligned word: a reader sees the old one or
        the new one.
        """
        if os.pread(self._fd, _SEQUENCE.size, _SEQUENCE_AT) != _SEQUENCE.pack(self._sequence):
            raise OSError(errno.ESTALE, "the limits page was written by another")

    def begin(self) -> None:
        """Before several that belong together. Raises OSError as `check` does."""
        self.check()
        # What a killed writer left odd becomes even with the next write.
        self._sequence |= 1
        self.put("limits.sequence", self._sequence)

    def put(self, field: str, value: int, gpu: int = 0) -> None:
        """One field; gpu: of which entry it is. Raises OSError."""
        at, stride, form = _PLACES[field]
        os.pwrite(self._fd, form.pack(value), at + gpu * stride)

    def end(self) -> None:
        self._sequence += 1
        self.put("limits.sequence", self._sequence)

    def write(self, shares: Sequence[GpuShare]) -> None:
        """What `shares` say, and no grant but what is reserved. Raises OSError."""
        self.begin()
        for gpu, share in enumerate(shares):
            entry = limits.entry_of(share, 0)
            self.put("limits_gpu.memory_bytes", entry.memory_bytes, gpu)
            for name in ("core_percent", "core_ceiling_percent", "policy", "weight", "rate_ppm"):
                self.put(f"limits_gpu.{name}", getattr(entry, name), gpu)
        # Last: no rate of before may count for ever.
        self.put("limits.rate_until_ns", 0)
        self.end()
