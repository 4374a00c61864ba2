"""Files of a container's root, reached without ever leaving it.

The image decides what its paths are, and other containers may change them under our eyes: each path
is resolved by openat2 inside the root, and what is used afterwards is the descriptor, never the
path. Source: CVE-2024-0132, -0133, -0134.
"""

from __future__ import annotations

import os
import stat

from . import syscalls

_IN_ROOT = syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_MAGICLINKS
# A name that was just found missing is made and opened as itself: whoever puts a link there in
# between gets an error.
_ITSELF = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS


def open_path(root: int, path: str) -> int | None:
    """An O_PATH descriptor of `path` inside `root`, symlinks followed inside; None: not there."""
    try:
        return syscalls.openat2(root, path, os.O_PATH, _IN_ROOT)
    except FileNotFoundError:
        return None


def make_folder(root: int, path: str) -> int:
    """An O_PATH descriptor of the folder, made with its parents where they are missing."""
    parts = [part for part in path.split("/") if part]
    found = os.dup(root)
    for depth, part in enumerate(parts, 1):
        inner = open_path(root, "/".join(parts[:depth]))
        if inner is None:
            try:
                os.mkdir(part, 0o755, dir_fd=found)
                inner = syscalls.openat2(found, part, os.O_PATH | os.O_DIRECTORY, _ITSELF)
            finally:
                os.close(found)
        else:
            os.close(found)
        found = inner
    return found


def make_file(root: int, path: str) -> int:
    """An O_PATH descriptor of the file, made empty where it is missing."""
    found = open_path(root, path)
    if found is not None:
        return found
    folder = make_folder(root, os.path.dirname(path))
    try:
        name = os.path.basename(path)
        flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
        os.close(os.open(name, flags, 0o644, dir_fd=folder))
        return syscalls.openat2(folder, name, os.O_PATH, _ITSELF)
    finally:
        os.close(folder)


def make_target(root: int, path: str, source: int) -> int:
    """What a mount of `source` can be laid over: a folder over a folder, else a file."""
    is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
    return make_folder(root, path) if is_folder else make_file(root, path)


def same_file(one: int, other: int) -> bool:
    first, second = os.fstat(one), os.fstat(other)
    return (first.st_dev, first.st_ino) == (second.st_dev, second.st_ino)
