"""The ledger: one record a file, one lock around choose-and-write, nothing lost to a kill.

    <state>/lock                         held (flock) during each change
    <state>/allocations/<id>.json        the record; it alone says that the allocation exists
    <state>/containers/<id>/limits       what the shim reads
    <state>/containers/<id>/usage        what the shim writes
    <state>/containers/<id>/procfs/      what stands at its /proc/driver/nvidia
    <state>/containers/<id>/mount-points its root and our mounts there (guest/mount_points.py)
    <state>/ended/                       handles of ended containers' usage pages that a process has

A claim writes the pages first and the record last; a release removes the record first. Killed in
between, either leaves a folder without a record, which the next `sweep` removes.
"""

from __future__ import annotations

import errno
import os

from ..guest import ended_pages, page_file
from ..model import allocation as records
from ..model import names
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..pages import layout
from ..system import files, own_lock
from . import events

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


LOCK_SECONDS = 30.0
_SUFFIX = ".json"


class Ledger:
    """The records below `state_dir`.

    Every method but `read`, `read_all`, `get`, `make_room`, `cut_back`, `cut_ended`,
    `make_folders`, `folders_of_pages` and `record_event` needs the lock. program: the name that
    events give for the source of a change.
    """

    def __init__(self, state_dir: str, program: str = names.COMMAND) -> None:
        self.state_dir, self.program = state_dir, program
        self.allocations = state_dir + "/allocations"
        self.containers = state_dir + "/containers"
        self.ended = state_dir + "/ended"
        self._lock_fd = -1

    def __enter__(self) -> Ledger:
        """Take the lock. Raises VcudaError: no such folder, or another process holds the lock too
        long.
        """
        try:
            self.make_folders()
            self._lock_fd = own_lock.acquire(self.state_dir + "/lock", LOCK_SECONDS)
        except BlockingIOError:
            raise VcudaError(
                f"another process has held the lock for {LOCK_SECONDS:.0f} s",
                self.state_dir + "/lock",
                "find it with 'fuser' and end it",
            ) from None
        except OSError as error:
            raise unwritable(self.state_dir, error) from error
        return self

    def __exit__(self, *_: object) -> None:
        os.close(self._lock_fd)
        self._lock_fd = -1

    def make_folders(self) -> None:
        """Create missing folders. Needs no lock. Raises OSError."""
        folders = ((self.allocations, 0o700), (self.containers, 0o711), (self.ended, 0o700))
        for folder, mode in folders:
            if not _has_mode(folder, mode):
                os.makedirs(self.state_dir, 0o755, exist_ok=True)
                page_file.make_folder(folder, mode)

    def read(self) -> tuple[list[Allocation], list[tuple[str, str]]]:
        """Every complete record, and (path, reason) of each other one.

        Raises VcudaError: the caller is not root.
        """
        allocations, broken = [], []
        try:
            found = sorted(os.listdir(self.allocations))
        except FileNotFoundError:
            found = []
        except PermissionError as error:
            raise VcudaError(
                f"cannot be read: {error.strerror}", self.allocations, "run it as root"
            ) from error
        for name in found:
            if not name.endswith(_SUFFIX):
                continue
            path = f"{self.allocations}/{name}"
            try:
                allocations.append(self._parse(path, name[: -len(_SUFFIX)]))
            except FileNotFoundError:
                continue  # released meanwhile
            except (OSError, ValueError) as error:
                broken.append((path, str(error)))
        return allocations, broken

    def read_all(self) -> list[Allocation]:
        """Every record. Raises VcudaError: one is not complete, so the free shares are unknown."""
        allocations, broken = self.read()
        if broken:
            raise broken_record(*broken[0])
        return allocations

    def get(self, id: str) -> Allocation | None:
        """The record; None: there is none. Raises VcudaError: it is incomplete."""
        path = f"{self.allocations}/{id}{_SUFFIX}"
        try:
            return self._parse(path, id)
        except FileNotFoundError:
            return None
        except (OSError, ValueError) as error:
            raise broken_record(path, str(error)) from error

    def write(self, allocation: Allocation, limits: bytes) -> None:
        """Record an allocation with new pages. Raises VcudaError with nothing recorded; NoRoom: the
        file system is full.
        """
        folder = f"{self.containers}/{allocation.id}"
        try:
            self.close_folder(allocation)
            page_file.replace_page(folder + "/limits", limits, 0o444)
            ended_pages.replace(
                folder + "/usage",
                self.ended,
                layout.empty_usage_page(),
                page_file.USAGE_MODE,
                layout.USAGE_SIZE,
            )
            self.record(allocation)
        except OSError as error:
            if not os.path.exists(f"{self.allocations}/{allocation.id}{_SUFFIX}"):
                self._remove_pages(allocation.id)
            raise unwritable(self.state_dir, error) from error

    def make_room(self, search: bool) -> bool:
        """Cut back what containers have added to their pages; return whether there was anything.
        Call without the lock: pages of hostile containers can be slow.

        search: also search the descriptors of all processes for pages without a name.
        """
        found = ended_pages.cut(self.ended, 0)
        if search:
            from ..guest import left_open  # a full file system is rare

            # First the slower search: a container that continues to write fills freed space again.
            found = left_open.cut_back(self.state_dir) or found
        return bool(self.cut_back()) or found

    def close_folder(self, allocation: Allocation) -> None:
        """Decide which of the host's users may enter the folder of its pages. Raises OSError.

        Every user of a container writes its usage page. Users of the host may not, except for named
        slices, which rootless containers share. Container root may write a program into the page
        and make it setuid, so a named slice's folder is open only on a mount with nosuid.
        """
        is_safe = os.statvfs(self.containers).f_flag & os.ST_NOSUID
        mode = 0o711 if allocation.is_named_slice and is_safe else 0o700
        page_file.make_folder(f"{self.containers}/{allocation.id}", mode)

    def cut_back(self) -> list[str]:
        """Cut back what containers added to their pages; return the ids of those that had.

        Needs no lock. A page that cannot be opened because of a lease does not stop the others.
        """
        cut = []
        for id in self.folders_of_pages():
            try:
                if page_file.restore(f"{self.containers}/{id}/usage", layout.USAGE_SIZE):
                    cut.append(id)
            except OSError:
                continue  # released meanwhile, or leased: tried again next time
        return cut

    def cut_ended(self) -> None:
        """Cut back what processes added to pages of ended containers, and forget pages that no
        process has. Needs no lock.
        """
        ended_pages.cut(self.ended, layout.USAGE_SIZE)

    def folders_of_pages(self) -> dict[str, tuple[int, int]]:
        """Inode and change time of each folder by id, with or without a record: both change when a
        folder's pages are replaced.
        """
        try:
            entries = list(os.scandir(self.containers))
        except FileNotFoundError:
            return {}  # nothing was ever claimed
        found = {}
        for entry in entries:
            try:
                status = entry.stat(follow_symlinks=False)
            except FileNotFoundError:
                continue  # released meanwhile
            found[entry.name] = status.st_ino, status.st_mtime_ns
        return found

    def record(self, allocation: Allocation) -> None:
        """Write the record only, replacing the old one. Raises OSError."""
        path = f"{self.allocations}/{allocation.id}{_SUFFIX}"
        files.replace(path, allocation.dump().encode(), 0o644)

    def remove(self, id: str) -> None:
        """Release the allocation; a second release changes nothing."""
        files.remove(f"{self.allocations}/{id}{_SUFFIX}")
        self._remove_pages(id)

    def _remove_pages(self, id: str) -> None:
        try:
            ended_pages.remove(f"{self.containers}/{id}", self.ended, layout.USAGE_SIZE)
        except OSError:
            pass  # a folder without a record has no effect; the next sweep removes it

    def sweep(self, is_alive: Callable[[Allocation], bool]) -> list[str]:
        """Release the shares of ended containers. Return the ids. A broken record stays."""
        allocations, broken = self.read()
        dead = [allocation for allocation in allocations if not is_alive(allocation)]
        for allocation in dead:
            self.remove(allocation.id)
            self.record_event(events.RELEASED, allocation, "swept: its container has ended")
        swept = [allocation.id for allocation in dead]
        kept = {allocation.id for allocation in allocations} - set(swept)
        kept |= {os.path.basename(path)[: -len(_SUFFIX)] for path, _ in broken}
        for id in os.listdir(self.containers):
            if id not in kept:
                self._remove_pages(id)
        self.cut_ended()
        for name in os.listdir(self.allocations):
            if not name.endswith(_SUFFIX):
                files.remove(f"{self.allocations}/{name}")
        return swept

    def record_event(
        self, kind: str, allocation: Allocation, text: str, seconds: float = -1
    ) -> None:
        """Record an event of the allocation. seconds: duration; below 0: unknown."""
        more = events.about(allocation.container_id, allocation.pod, allocation.engine)
        if seconds >= 0:
            more["seconds"] = round(seconds, 6)
        events.record(self.state_dir, self.program, kind, allocation.id, text, **more)

    def _parse(self, path: str, id: str) -> Allocation:
        # Not if others may write it: with a record of their own they would have a GPU.
        allocation = records.parse(files.read_ours(path, 1 << 20))
        if allocation.id != id:
            raise ValueError(f"its id is {allocation.id}")
        return allocation


def _has_mode(folder: str, mode: int) -> bool:
    """Whether the folder exists, closed as it must be: another program may have made it."""
    try:
        return os.stat(folder).st_mode & 0o777 == mode
    except FileNotFoundError:
        return False


def broken_record(path: str, reason: str) -> VcudaError:
    """The error for a broken record: while it exists, the free shares are unknown."""
    id = os.path.basename(path)[: -len(_SUFFIX)]
    return VcudaError(
        f"is not a whole record ({reason})",
        path,
        f"run 'vcuda release {id}' if its container has ended",
    )


class NoRoom(VcudaError):
    """The state folder's file system is full."""


def unwritable(state_dir: str, error: OSError) -> VcudaError:
    where = str(error.filename or state_dir)
    if isinstance(error, BlockingIOError):
        return page_file.leased(where)
    hint = "free space there, or set state-dir"
    if error.errno in (errno.EACCES, errno.EPERM):
        # One ledger for all users, or a GPU would be promised twice.
        hint = (
            "shares are root's to give: run it as root, or have root name a slice with "
            "'vcuda cdi generate --slice', which --device gives to rootless containers too"
        )
    elif error.errno == errno.EROFS:
        hint = "mount it read-write, or set state-dir"
    if error.errno == errno.ENOSPC:
        return NoRoom(f"cannot be written: {error.strerror}", where, hint)
    return VcudaError(f"cannot be written: {error.strerror}", where, hint)
