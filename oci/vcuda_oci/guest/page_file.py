"""Open, read, restore and remove a container's usage and limits pages.

Root in a container can take a file lease on a page that is mounted there. An open without
O_NONBLOCK then waits up to 45 s (/proc/sys/fs/lease-break-time). An open with O_NONBLOCK fails at
once, and the kernel ends the lease within the same time. So BlockingIOError means: no figures now,
try again later.

The container writes its usage page, so its root can also change the page's length, mode, owner,
attributes and flags.

`path` is that of a page, or the handle (file_handle) of an ended container's page.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct

from ..model.errors import VcudaError
from ..system import files
from . import file_handle

USAGE_MODE = 0o666

# Attributes that stay: SELinux, not the container, gives each file its label.
_KEPT = ("security.selinux",)
# Source: linux/fs.h, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL and FS_APPEND_FL.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_FROZEN = 0x10 | 0x20


def leased(path: str) -> VcudaError:
    """The error to raise where changing a page met a BlockingIOError."""
    hint = "try again in a minute; where the host has no claim socket, start 'vcuda serve' first"
    return VcudaError("a process holds a file lease on it", path, hint)


def open_page(path: str, flags: int) -> int:
    """Open a page. Raises OSError; BlockingIOError: a process holds a lease on it."""
    fd = _open(path, flags | os.O_NONBLOCK)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(22, "is not a regular file", path)
    return fd


def open_without_lease(path: str, flags: int) -> int:
    """Open a page and end its leases; no process can take one while the descriptor is open.

    Waits up to 45 s for existing leases to end. The kernel counts the waiting open, so no process
    gets a new lease meanwhile. Do not call in an event loop or under a lock. Raises OSError.
    """
    try:
        return _open(path, flags)
    except PermissionError:
        fd = _open(path, os.O_RDONLY)
        try:
            _unfreeze_open(fd)
            return _open(path, flags)
        finally:
            os.close(fd)


def _open(path: str, flags: int) -> int:
    if file_handle.is_handle(path):
        return file_handle.open_file(path, flags)
    return os.open(path, flags | os.O_NOFOLLOW | os.O_CLOEXEC)


def read_page(path: str, most: int) -> bytes:
    """The first `most` bytes of a page. Raises OSError as `open_page` does."""
    fd = open_page(path, os.O_RDONLY)
    try:
        return os.pread(fd, most, 0)
    finally:
        os.close(fd)


def identity(path: str) -> tuple[int, int]:
    """Device and inode of a page; a rename does not change them. Raises OSError."""
    found = status(path)
    return found.st_dev, found.st_ino


def status(path: str) -> os.stat_result:
    """The page's status, as os.lstat. Raises OSError."""
    fd = _open(path, os.O_PATH)
    try:
        return os.fstat(fd)
    finally:
        os.close(fd)


def make_folder(folder: str, mode: int) -> None:
    """Make a container's folder, which its processes cannot reach. Raises OSError."""
    try:
        os.mkdir(folder, 0o700)
    except (FileExistsError, FileNotFoundError):
        os.makedirs(folder, 0o700, exist_ok=True)
    os.chmod(folder, mode)


def replace_page(path: str, content: bytes, mode: int, size: int = 0) -> None:
    """Put a fresh page at `path`, over any existing one. Raises OSError as files.replace does."""
    try:
        files.replace(path, content, mode, size)
    except PermissionError:
        _unfreeze(path)
        files.replace(path, content, mode, size)


def remove_pages(folder: str) -> None:
    """Remove a container's folder, if it exists, with its pages. Raises OSError."""
    try:
        files.remove_tree(folder)
    except PermissionError:
        for name in os.listdir(folder):
            try:
                _unfreeze(f"{folder}/{name}")
            except OSError:
                continue  # a folder, or leased: remove_tree reports it
        files.remove_tree(folder)


def restore(path: str, most: int) -> bool:
    """Undo changes that a container made to its usage page as a file; return whether it took space.

    The first `most` bytes stay, so the container's processes are not disturbed. Mode and owner are
    set to the original ones. Raises OSError: the page is removed, or leased.
    """
    frozen = False
    try:
        fd = open_page(path, os.O_WRONLY)
    except PermissionError:
        frozen = _unfreeze(path)
        fd = open_page(path, os.O_WRONLY)
    try:
        return restore_open(fd, most) or frozen
    finally:
        os.close(fd)


def restore_open(page: int, most: int) -> bool:
    """Do as `restore`, by a writable descriptor. Raises OSError."""
    _unfreeze_open(page)
    before = os.fstat(page)
    # Also frees the space that fallocate(2) reserved beyond the end, at an unchanged length.
    os.ftruncate(page, min(before.st_size, most))
    after = os.fstat(page)
    # The container may have made the page longer again by now.
    cut = before.st_size > most or after.st_blocks < before.st_blocks
    if (before.st_uid, before.st_gid) != (os.geteuid(), os.getegid()):
        os.fchown(page, os.geteuid(), os.getegid())
    if stat.S_IMODE(before.st_mode) != USAGE_MODE:
        os.fchmod(page, USAGE_MODE)
    return _remove_attributes(page) or cut


def _remove_attributes(page: int) -> bool:
    try:
        attributes = os.listxattr(page)
    except OSError:
        return False  # too many to list, or the file system has no attributes
    removed = False
    for name in attributes:
        if name not in _KEPT:
            try:
                os.removexattr(page, name)
                removed = True
            except OSError:
                continue  # a security module refuses it
    return removed


def _unfreeze(path: str) -> bool:
    """Clear the flags "immutable" and "append only"; return whether one was set. Raises OSError."""
    fd = open_page(path, os.O_RDONLY)
    try:
        return _unfreeze_open(fd)
    finally:
        os.close(fd)


def _unfreeze_open(page: int) -> bool:
    try:
        (flags,) = struct.unpack_from("=I", fcntl.ioctl(page, _GET_FLAGS, bytes(8)))
    except OSError:
        return False  # a file system without flags
    if flags & _FROZEN:
        fcntl.ioctl(page, _SET_FLAGS, struct.pack("=II", flags & ~_FROZEN, 0))
    return bool(flags & _FROZEN)
