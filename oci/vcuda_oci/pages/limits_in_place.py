"""Change a mapped limits page in place, by one writer at a time.

The arbiter writes grants, `vcuda limit` writes changed shares. A change of several fields is framed
by the page's sequence number: odd while the fields change, the next even number afterwards. So
the shim does not use a half-written page, and a writer that kept the page open detects another's
change.
"""

from __future__ import annotations

import errno
import os
import struct

from ..guest import page_file
from ..model.allocation import GpuShare
from ..system import own_lock
from . import layout, limits, page_reader

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# Not the page itself: any process that can open a file can lock it.
LOCK = "pages.lock"
_AT = {name: at for name, at, _ in layout.offsets()}
# By field: its offset for the first GPU, the distance to the next GPU's, and its struct.
_PLACES = {
    f"{table}.{name}": (
        _AT[f"{table}.{name}"] + (_AT["limits.gpu"] if table == "limits_gpu" else 0),
        layout.LIMITS_GPU_SIZE if table == "limits_gpu" else 0,
        struct.Struct("=" + code),
    )
    for table in ("limits", "limits_gpu")
    for name, code in layout.FIELDS[table]
}
_SHARED = ("core_percent", "core_ceiling_percent", "policy", "weight", "rate_ppm", "latency")
_SEQUENCE_AT, _, _SEQUENCE = _PLACES["limits.sequence"]


class Turn:
    """The lock for writing pages below `state_dir`, as a context manager.

    Entering waits up to `seconds` and returns whether it has the lock. Raises OSError: the lock
    cannot be opened.
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
    """An open limits page. Write to it only while holding a Turn."""

    def __init__(self, path: str, shares: Sequence[GpuShare] | None = None) -> None:
        """shares: those that it must be of. Raises OSError. ValueError: not a limits page, or a
        page of other GPUs."""
        self._fd = page_file.open_page(path, os.O_RDWR)
        try:
            page = page_reader.read_limits(os.pread(self._fd, layout.LIMITS_SIZE, 0))
            self._sequence, self.uuids = page.sequence, [gpu.uuid for gpu in page.gpus]
            if shares is not None and self.uuids != [share.uuid for share in shares]:
                raise ValueError("the limits page names other GPUs than the record")
        except BaseException:
            os.close(self._fd)
            raise

    def close(self) -> None:
        os.close(self._fd)

    def check(self) -> None:
        """Check that no other writer changed the page. Raises OSError; ESTALE: one did.

        Before a `put` of one aligned word this check suffices: a reader sees the old or the new
        word.
        """
        if os.pread(self._fd, _SEQUENCE.size, _SEQUENCE_AT) != _SEQUENCE.pack(self._sequence):
            raise OSError(errno.ESTALE, "the limits page was written by another")

    def begin(self) -> None:
        """Begin a change of several fields. Raises OSError as `check` does."""
        self.check()
        # A killed writer leaves an odd number; this change's end makes it even again.
        self._sequence |= 1
        self.put("limits.sequence", self._sequence)

    def put(self, field: str, value: int | bytes, gpu: int = 0) -> None:
        """Write one field. gpu: index of the entry. Raises OSError."""
        at, stride, form = _PLACES[field]
        os.pwrite(self._fd, form.pack(value), at + gpu * stride)

    def add_hidden_work(self, gpu: int, ms: int) -> None:
        """Add work beside its turns, which the turn keeper then charges. Raises OSError."""
        self.check()
        at, stride, form = _PLACES["limits_gpu.hidden_ms"]
        (before,) = form.unpack(os.pread(self._fd, form.size, at + gpu * stride))
        self.put("limits_gpu.hidden_ms", (before + ms) % (1 << 16), gpu)

    def end(self) -> None:
        self._sequence += 1
        self.put("limits.sequence", self._sequence)

    def write(self, shares: Sequence[GpuShare]) -> None:
        """Write these shares, and as grants their reserved core. Raises OSError."""
        self.begin()
        for gpu, share in enumerate(shares):
            entry = limits.entry_of(share, 0)
            self.put("limits_gpu.memory_bytes", entry.memory_bytes, gpu)
            for name in _SHARED:
                self.put(f"limits_gpu.{name}", getattr(entry, name), gpu)
        # Last, because 0 makes the rates valid for ever: they must be the new ones by then.
        self.put("limits.rate_until_ns", 0)
        self.end()


def rename_gpus(path: str, uuids: Sequence[str]) -> None:
    """Have a limits page name these GPUs, in the order of its entries; the caller has the Turn.

    Raises OSError; ValueError: not a limits page.
    """
    page = OpenPage(path)
    try:
        if page.uuids != list(uuids):
            page.begin()
            for gpu, uuid in enumerate(uuids):
                page.put("limits_gpu.uuid", uuid.encode(), gpu)
            page.end()
    finally:
        page.close()


def ask_to_trim(fd: int, gpu: int) -> None:
    """Ask a container's shim to give back what its pools keep of a GPU. Raises OSError.

    fd: the page, open for reading and writing. gpu: its index in the page. The turn keeper asks
    too, without a lock: two at once are one, which the shim answers as well.
    """
    at, stride, _ = _PLACES["limits_gpu.trim_asked"]
    before = os.pread(fd, 1, at + gpu * stride)
    if before:
        os.pwrite(fd, bytes([(before[0] + 1) % 256]), at + gpu * stride)
