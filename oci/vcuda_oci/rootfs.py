"""What the wrapper has to know of the image: only looked at, never opened by a path of its own."""

from __future__ import annotations

import os
import stat

from . import machine

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

# The loader's default folders by layout, after Debian's; the first that the image has is where its
# loader looks. With libraries there no ldconfig has to run in the container. Source: ld.so(8).
_LAYOUTS = ("/usr/lib64", "/lib64", "/usr/lib")
_LOOK = os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC
_MOST_LINKS, _MOST_STEPS = 40, 256  # links: as many as the kernel follows
_MOST_KEPT = 64  # an image that names more folders shall not use up our descriptors
_NOTHING = -1


def path_of(spec: Any, bundle: str) -> str:
    """The image's root on the host; "" where the spec names none."""
    root = spec.get("root") if isinstance(spec, dict) else None
    path = root.get("path") if isinstance(root, dict) else None
    return os.path.join(bundle, path) if isinstance(path, str) else ""


def library_folder(spec: Any, bundle: str) -> str:
    """Where the container's loader finds libraries, as the container sees it.

    The answer chooses between constants, so an image that changes under our eyes can only choose
    another constant; the mount itself is made by the low-level runtime, inside the root.
    """
    try:
        with Tree(path_of(spec, bundle)) as tree:
            for folder in (machine.THIS.multiarch, *_LAYOUTS):
                if tree.folder(folder) == folder:
                    return folder
    except OSError:
        pass
    return "/usr/lib64"


class Tree:
    """An image's files, walked by file descriptors: a symlink is followed as in the container, and
    nothing leads out of the root, whatever is renamed meanwhile. What a path led through is kept
    for the next: where a loader looks, paths begin alike.

    Each method answers empty for what is not there, or not of the kind asked.
    """

    def __init__(self, path: str) -> None:
        """Raises OSError: no folder there."""
        try:
            self._root = os.open(path, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
        except ValueError as error:  # a NUL, or half of a character
            raise NotADirectoryError(20, str(error), path) from error
        self._open = {self._root}  # until the end, by descriptor
        # By path without symlinks: a folder's descriptor, a link's target, or that nothing is.
        self._kept: dict[str, int | str] = {}

    def __enter__(self) -> Tree:
        return self

    def __exit__(self, *_: object) -> None:
        for fd in self._open:
            os.close(fd)

    def folder(self, path: str) -> str:
        """Where a folder is, with no symlink in its path."""
        return self._found(path, stat.S_ISDIR)

    def file(self, path: str) -> str:
        """Where a regular file is, with no symlink in its path."""
        return self._found(path, stat.S_ISREG)

    def names(self, path: str) -> list[str]:
        """The names in a folder."""
        fd, _ = self._walk(path)
        try:
            if fd >= 0 and stat.S_ISDIR(os.fstat(fd).st_mode):
                return sorted(os.listdir(f"/proc/self/fd/{fd}"))
        except OSError:
            pass
        finally:
            self._close(fd)
        return []

    def present(self, folder: str, names: Sequence[str]) -> list[str]:
        """Those of `names` that the folder has, whatever they are."""
        fd, _ = self._walk(folder)
        try:
            return [name for name in names if fd >= 0 and _is_there(fd, name)]
        finally:
            self._close(fd)

    def read(self, path: str, limit: int) -> bytes:
        """A regular file of at most `limit` bytes."""
        fd, _ = self._walk(path)
        try:
            # Opened anew by what was looked at: a device node must not be opened at all.
            if fd >= 0 and stat.S_ISREG(os.fstat(fd).st_mode):
                with open(f"/proc/self/fd/{fd}", "rb") as file:
                    content = file.read(limit + 1)
                    return content if len(content) <= limit else b""
        except OSError:
            pass
        finally:
            self._close(fd)
        return b""

    def _found(self, path: str, is_kind: Any) -> str:
        fd, real = self._walk(path)
        try:
            return real if fd >= 0 and is_kind(os.fstat(fd).st_mode) else ""
        finally:
            self._close(fd)

    def _close(self, fd: int) -> None:
        if fd >= 0 and fd not in self._open:
            os.close(fd)

    def _walk(self, path: str) -> tuple[int, str]:
        """What is at `path`, opened with O_PATH, and its path without symlinks; -1: nothing is."""
        names: list[str] = []
        fds = [self._root]
        todo = path.split("/")[::-1]
        links = steps = 0
        try:
            while todo:
                part = todo.pop()
                steps += 1
                if steps > _MOST_STEPS:
                    return -1, ""
                if part in ("", "."):
                    continue
                if part == "..":
                    if names:
                        names.pop()
                        self._close(fds.pop())
                    continue
                found = self._look(names, part, fds[-1], bool(todo))
                if found == _NOTHING:
                    return -1, ""
                if isinstance(found, int):
                    fds.append(found)
                    names.append(part)
                    continue
                links += 1
                if links > _MOST_LINKS:
                    return -1, ""
                if found.startswith("/"):
                    while names:
                        names.pop()
                        self._close(fds.pop())
                todo += found.split("/")[::-1]
            return (fds.pop() if names else self._root), "/" + "/".join(names)
        except (OSError, ValueError):  # a NUL in a name
            return -1, ""
        finally:
            for fd in fds[1:]:
                self._close(fd)

    def _look(self, names: list[str], part: str, folder: int, leads_on: bool) -> int | str:
        """What `folder`, to which `names` led, has under this name: opened, or where it links to.

        leads_on: the path goes on behind it. Raises OSError: it can't be opened.
        """
        place = "/".join([*names, part])
        found = self._kept.get(place)
        if found is not None:
            return found
        may_keep = len(self._kept) < _MOST_KEPT
        try:
            fd = _opened_folder(part, folder) if leads_on else -1
            is_folder = fd >= 0
            if not is_folder:
                fd = os.open(part, _LOOK, dir_fd=folder)
        except FileNotFoundError:
            if may_keep:
                self._kept[place] = _NOTHING
            return _NOTHING
        if not is_folder:
            mode = os.fstat(fd).st_mode
            if stat.S_ISLNK(mode):
                try:
                    target = os.readlink("", dir_fd=fd)
                finally:
                    os.close(fd)
                if may_keep:
                    self._kept[place] = target
                return target
            is_folder = stat.S_ISDIR(mode)
        if is_folder and may_keep:
            self._kept[place] = fd
            self._open.add(fd)
        return fd


def _opened_folder(name: str, parent: int) -> int:
    """One call where most parts of a path are folders; -1: it is none. Raises OSError."""
    try:
        return os.open(name, _LOOK | os.O_DIRECTORY, dir_fd=parent)
    except NotADirectoryError:
        return -1


def _is_there(folder: int, name: str) -> bool:
    try:
        os.stat(name, dir_fd=folder, follow_symlinks=False)
    except OSError:
        return False
    return True
