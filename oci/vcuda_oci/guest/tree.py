"""Read an image's files within bounds, so that no image can cause much work.

All calls of one Tree count against the same bounds: steps along paths, names listed, bytes read,
and time. Past a bound it raises VcudaError, and the container does not start: a partial result
could miss a driver library that the image hides among many other files.
"""

from __future__ import annotations

import os
import stat
import time

from ..model.errors import VcudaError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

_PATH_ONLY = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS, _MOST_PATH = 40, 4096  # the kernel's bounds on one path
_MOST_CACHED = 64  # bound on open descriptors
_NOTHING = -1

# Common images take some 200 steps, list 50 names and read 100 KiB.
MOST_STEPS, MOST_NAMES, MOST_BYTES, MOST_SECONDS = 1 << 16, 1 << 16, 20 << 20, 20
# Past one of these the Tree bounds the process's memory too.
SMALL_NAMES, SMALL_BYTES = 1 << 12, 1 << 20
HINT = "make the image smaller there"


class Tree:
    """An image's files, walked by file descriptors.

    A symlink is followed as in the container, and no path leads out of the root, even if folders
    are renamed during the walk. Folders and links on the way are cached, because the paths that a
    loader searches begin alike. A method returns an empty value if the path does not exist or is of
    another kind. It raises VcudaError past a bound.
    """

    def __init__(self, path: str) -> None:
        """path: the root's. A root that cannot be opened has no files."""
        self._open: set[int] = set()  # descriptors that stay open until the end
        try:
            self._root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
            self._open.add(self._root)
        except (OSError, ValueError):  # ValueError: a NUL, or half of a character
            self._root = _NOTHING
        self._steps = self._names = self._bytes = 0
        self._memory: Any = None  # the entered BoundedMemory, if any
        self._deadline = time.monotonic() + MOST_SECONDS
        # By path without symlinks: a folder's descriptor, a link's target, or _NOTHING.
        self._cached: dict[str, int | str] = {}

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *error: Any) -> None:
        for fd in self._open:
            os.close(fd)
        if self._memory:
            self._memory.__exit__(*error)

    def folder(self, path: str) -> str:
        """The path of a folder with all symlinks resolved."""
        return self._found(path, stat.S_ISDIR)

    def file(self, path: str) -> str:
        """The path of a regular file with all symlinks resolved."""
        return self._found(path, stat.S_ISREG)

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        fd, _ = self._walk(path)
        try:
            if not stat.S_ISDIR(self._mode(fd)):
                return []
            found = []
            with os.scandir(f"/proc/self/fd/{fd}") as entries:
                for entry in entries:
                    self._names = self._within(self._names + 1, MOST_NAMES, "names", path)
                    self._bound_memory(self._names > SMALL_NAMES)
                    found.append(entry.name)
            return sorted(found)
        except OSError:
            return []
        finally:
            self._close(fd)

    def files(self, folder: str, names: Sequence[str]) -> dict[str, str]:
        """The regular files that these names in the folder lead to: the name, by the path with all
        symlinks resolved."""
        fd, real = self._walk(folder)
        real = real.rstrip("/")
        found: dict[str, str] = {}
        try:
            self._steps = self._within(self._steps + len(names), MOST_STEPS, "paths", folder)
            for name in names if fd >= 0 else ():
                mode = _mode_of(fd, name)
                is_link = stat.S_ISLNK(mode)
                if is_link or stat.S_ISREG(mode):
                    path = self.file(f"{real}/{name}") if is_link else f"{real}/{name}"
                    if path:
                        found[path] = name
            return found
        finally:
            self._close(fd)

    def read(self, path: str, limit: int) -> bytes:
        """The content of a regular file. More than `limit` bytes count as past a bound."""
        fd, _ = self._walk(path)
        try:
            # Check before opening: a device node must not be opened.
            if not stat.S_ISREG(self._mode(fd)):
                return b""
            # O_NONBLOCK: do not wait for a lease. Not open(): it sizes its buffer by the file.
            file = os.open(f"/proc/self/fd/{fd}", os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
            try:
                return self._content(file, limit, path)
            finally:
                os.close(file)
        except BlockingIOError as error:
            what = "a program holds a lease on it"
            raise VcudaError(what, f"{path} in the image", "end that program") from error
        except OSError:
            return b""
        finally:
            self._close(fd)

    def _content(self, file: int, limit: int, path: str) -> bytes:
        self._within(os.fstat(file).st_size, limit, "bytes", path)
        chunks = []
        while chunk := os.read(file, 1 << 16):
            self._bytes = self._within(self._bytes + len(chunk), MOST_BYTES, "bytes", path)
            self._bound_memory(self._bytes > SMALL_BYTES)
            chunks.append(chunk)
        return b"".join(chunks)

    def _bound_memory(self, is_large: bool) -> None:
        if is_large and not self._memory:
            from .memory import BoundedMemory  # late: its import takes 2 % of a start

            bound = BoundedMemory("the image")
            bound.__enter__()
            self._memory = bound

    def _found(self, path: str, is_kind: Any) -> str:
        fd, real = self._walk(path)
        try:
            return real if is_kind(self._mode(fd)) else ""
        finally:
            self._close(fd)

    def _mode(self, fd: int) -> int:
        """st_mode of what `_walk` found; 0: nothing."""
        if fd in self._open:
            return stat.S_IFDIR  # only folders stay open
        return os.fstat(fd).st_mode if fd >= 0 else 0

    def _close(self, fd: int) -> None:
        if fd >= 0 and fd not in self._open:
            os.close(fd)

    def _walk(self, path: str) -> tuple[int, str]:
        """An O_PATH descriptor of `path`, and the path without symlinks; -1: it does not exist."""
        if self._root < 0 or len(path) >= _MOST_PATH:
            return -1, ""  # no loader can open a longer path either
        here = ""  # the path of fds[-1] without symlinks; "": the root
        fds = [self._root]
        todo = self._parts(path, path)
        links = 0
        try:
            while todo:
                part = todo.pop()
                if part in ("", "."):
                    continue
                if part == "..":
                    if here:
                        here = here.rpartition("/")[0]
                        self._close(fds.pop())
                    continue
                place = f"{here}/{part}"
                found = self._cached.get(place)
                if found is None:
                    self._check_time(path)
                    found = self._open_part(place, part, fds[-1], bool(todo))
                if found == _NOTHING:
                    return -1, ""
                if isinstance(found, int):
                    fds.append(found)
                    here = place
                    continue
                links += 1
                if links > _MOST_LINKS:
                    return -1, ""
                if found.startswith("/"):
                    here = ""
                    while len(fds) > 1:
                        self._close(fds.pop())
                todo += self._parts(found, path)
            return fds.pop(), here or "/"
        except (OSError, ValueError):  # a NUL in a name
            return -1, ""
        finally:
            for fd in fds[1:]:
                self._close(fd)

    def _parts(self, way: str, path: str) -> list[str]:
        """The parts of a path or of a link's target, the last one first. Raises VcudaError."""
        parts = way.split("/")[::-1]
        self._steps = self._within(self._steps + len(parts), MOST_STEPS, "paths", path)
        return parts

    def _within(self, count: int, most: int, of: str, path: str) -> int:
        """Return `count` if it and the time are within bounds. Raises VcudaError."""
        if count > most:
            raise VcudaError(f"more than {most} {of}", f"{path} in the image", HINT)
        self._check_time(path)
        return count

    def _check_time(self, path: str) -> None:
        if time.monotonic() > self._deadline:
            what = f"searching the image took more than {MOST_SECONDS} s"
            raise VcudaError(what, f"{path} in the image", HINT)

    def _open_part(self, place: str, part: str, folder: int, leads_on: bool) -> int | str:
        """Resolve one part of a path: a descriptor, a link's target, or _NOTHING.

        place: the path up to the part, without symlinks. folder: descriptor of the folder that has
        the part. leads_on: more parts follow. Raises OSError: it cannot be opened.
        """
        may_cache = len(self._cached) < _MOST_CACHED
        try:
            fd = _opened_folder(part, folder) if leads_on else -1
            is_folder = fd >= 0
            if not is_folder:
                fd = os.open(part, _PATH_ONLY, dir_fd=folder)
        except FileNotFoundError:
            if may_cache:
                self._cached[place] = _NOTHING
            return _NOTHING
        if not is_folder:
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                try:
                    target = os.readlink("", dir_fd=fd)
                finally:
                    os.close(fd)
                if may_cache:
                    self._cached[place] = target
                return target
            is_folder = stat.S_ISDIR(mode)
        if is_folder and may_cache:
            self._cached[place] = fd
            self._open.add(fd)
        return fd


def _opened_folder(name: str, parent: int) -> int:
    """Open a folder; -1: not a folder. Most parts of a path are folders, so try this first."""
    try:
        return os.open(name, _PATH_ONLY | os.O_DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        return -1


def _mode_of(folder: int, name: str) -> int:
    """st_mode of what has this name; 0: nothing."""
    try:
        return os.stat(name, dir_fd=folder, follow_symlinks=False).st_mode
    except OSError:
        return 0
