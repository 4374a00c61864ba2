"""A container's usage and limits pages as files: opened, read, put back and removed.

A container's root can take a file lease on a page that is mounted in it. An open without O_NONBLOCK
then waits up to 45 s (/proc/sys/fs/lease-break-time); with it, it fails at once and the kernel ends
the lease by then. So BlockingIOError means: no figures now, try again later.

A usage page is the container's to write, so its root can also change the page's length, mode,
owner, attributes and flags.
"""

from __future__ import annotations

import fcntl
import os
import stat
import struct

from .. import files
from ..errors import VcudaError

USAGE_MODE = 0o666

# Not a container's to decide: SELinux gives each file its label.
_KEPT = ("security.selinux",)
_SAFE = os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
# Source: linux/fs.h, FS_IOC_GETFLAGS, FS_IOC_SETFLAGS, FS_IMMUTABLE_FL and FS_APPEND_FL.
_GET_FLAGS, _SET_FLAGS = 0x80086601, 0x40086602
_IMMUTABLE = 0x10
_FROZEN = _IMMUTABLE | 0x20


def leased(path: str) -> VcudaError:
    """The error for a BlockingIOError while the page is changed."""
    hint = "try again in a minute; where no node agent runs, start 'vcuda serve' first"
    return VcudaError("a process holds a file lease on it", path, hint)


def open_page(path: str, flags: int) -> int:
    """A descriptor of a page. Raises OSError; BlockingIOError: a process holds a lease on it."""
    fd = os.open(path, flags | _SAFE)
    if not stat.S_ISREG(os.fstat(fd).st_mode):
        os.close(fd)
        raise OSError(22, "is not a regular file", path)
    return fd


def open_without_lease(path: str, flags: int) -> int:
    """A descriptor of a page on which no process holds a lease, nor can while this one is open.

    Waits for the end of those that are there, for 45 s at most: the open counts as soon as it
    waits, so no process gets another. Not for an event loop, nor under a lock. Raises OSError.
    """
    safe = flags | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        return os.open(path, safe)
    except PermissionError:
        fd = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
        try:
            _unfreeze_open(fd)
            return os.open(path, safe)
        finally:
            os.close(fd)


def read_page(path: str, most: int) -> bytes:
    """The first `most` bytes of a page. Raises OSError as `open_page` does."""
    fd = open_page(path, os.O_RDONLY)
    try:
        return os.pread(fd, most, 0)
    finally:
        os.close(fd)


def identity(path: str) -> tuple[int, int]:
    """Device and inode of a page, by which it is known whatever its name. Raises OSError."""
    status = os.lstat(path)
    return status.st_dev, status.st_ino


def make_folder(folder: str, mode: int) -> None:
    """A container's folder, which its processes do not reach. Raises OSError."""
    os.makedirs(folder, 0o700, exist_ok=True)
    os.chmod(folder, mode)


def replace_page(path: str, content: bytes, mode: int, size: int = 0) -> None:
    """A fresh page in the place of the one that may be there. Raises OSError as files.replace."""
    try:
        files.replace(path, content, mode, size)
    except PermissionError:
        _unfreeze(path)
        files.replace(path, content, mode, size)


def remove_pages(folder: str) -> None:
    """Remove a container's folder with its pages; none is fine. Raises OSError."""
    try:
        files.remove_tree(folder)
    except PermissionError:
        for name in os.listdir(folder):
            try:
                _unfreeze(f"{folder}/{name}")
            except OSError:
                continue  # a folder, or leased: the removal says so
        files.remove_tree(folder)


def put_back(path: str, most: int) -> bool:
    """Take back what a container added to its usage page; whether there was anything.

    What is within `most` bytes stays, so no process of the container's is harmed. Mode and owner
    become those that it was made with. Raises OSError: released meanwhile, or leased.
    """
    frozen = False
    try:
        fd = open_page(path, os.O_WRONLY)
    except PermissionError:
        frozen = _unfreeze(path)
        fd = open_page(path, os.O_WRONLY)
    try:
        return put_back_open(fd, most) or frozen
    finally:
        os.close(fd)


def put_back_open(page: int, most: int) -> bool:
    """As `put_back`, by a descriptor that can write. Raises OSError."""
    _unfreeze_open(page)
    before = os.fstat(page)
    # Of a file that is no longer, this gives back what fallocate(2) put behind its end.
    os.ftruncate(page, min(before.st_size, most))
    after = os.fstat(page)
    # Its writer may have made it longer again by now.
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
        return False  # more names than the kernel lists, or none on this file system
    removed = False
    for name in attributes:
        if name not in _KEPT:
            try:
                os.removexattr(page, name)
                removed = True
            except OSError:
                continue  # another module of the kernel's holds on to it
    return removed


def move_page(path: str, to: str) -> None:
    """Give a page another name. Raises OSError."""
    try:
        os.rename(path, to)
    except PermissionError:
        _unfreeze(path)
        os.rename(path, to)


def link_page(path: str, to: str) -> None:
    """Give a page a second name. Raises OSError."""
    try:
        os.link(path, to, follow_symlinks=False)
    except PermissionError:
        _unfreeze(path)
        os.link(path, to, follow_symlinks=False)


def freeze_open(page: int) -> None:
    """Refuse every later open for writing; a tmpfs can from Linux 6.6 on."""
    try:
        _set_flags(page, _flags(page) | _IMMUTABLE)
    except OSError:
        pass


def open_frozen(path: str) -> int:
    """A descriptor for writing of a page that is frozen, and is so again. Raises OSError."""
    fd = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        _unfreeze_open(fd)
        try:
            return os.open(path, os.O_WRONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        finally:
            freeze_open(fd)
    finally:
        os.close(fd)


def _unfreeze(path: str) -> bool:
    """Take the flags "immutable" and "append only" off; whether any was set. Raises OSError."""
    fd = open_page(path, os.O_RDONLY)
    try:
        return _unfreeze_open(fd)
    finally:
        os.close(fd)


def _unfreeze_open(page: int) -> bool:
    try:
        flags = _flags(page)
    except OSError:
        return False  # a file system without flags
    if flags & _FROZEN:
        _set_flags(page, flags & ~_FROZEN)
    return bool(flags & _FROZEN)


def _flags(page: int) -> int:
    (flags,) = struct.unpack_from("=I", fcntl.ioctl(page, _GET_FLAGS, bytes(8)))
    return int(flags)


def _set_flags(page: int, flags: int) -> None:
    fcntl.ioctl(page, _SET_FLAGS, struct.pack("=II", flags, 0))
