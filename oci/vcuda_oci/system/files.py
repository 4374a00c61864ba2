"""Whole-file reads and writes that a crash or a hostile name cannot cut in two."""

from __future__ import annotations

import errno
import os
import time

_SETTLED_NS = 10**9
_KIND, _REGULAR = 0o170000, 0o100000  # S_IFMT and S_IFREG of `stat`, which takes time to import


def read(path: str, limit: int = 64 << 20, follow: bool = False) -> bytes:
    """The whole file; a symlink only if `follow`. Raises OSError, also above `limit` bytes."""
    fd = _open(path, 0 if follow else os.O_NOFOLLOW)
    try:
        return _content(fd, limit, path)
    finally:
        os.close(fd)


def read_settings(path: str, limit: int = 64 << 20) -> bytes:
    """As `read`; a link is followed.

    Raises VcudaError: another user could have changed it, or it is not a regular file.
    """
    try:
        fd = _open(path, os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        from . import trusted_file  # a plain file of root's needs none of it

        if error.errno == errno.ENXIO:  # a socket
            raise trusted_file.not_regular(path) from error
        return trusted_file.read_linked(path)
    try:
        status, ours = os.fstat(fd), (0, os.geteuid())
        for each in (status, os.stat(os.path.dirname(path) or ".")):
            if each.st_uid not in ours or each.st_mode & 0o022:
                from . import trusted_file

                trusted_file.check(path, fd, status)
        if status.st_mode & _KIND != _REGULAR:  # a FIFO would read as empty
            from . import trusted_file

            raise trusted_file.not_regular(path)
        return _content(fd, limit, path)
    except FileNotFoundError as error:  # its folder: a missing file would mean the defaults
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path) from error
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    # A FIFO or a lease is no reason to wait.
    return os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def _content(fd: int, limit: int, path: str) -> bytes:
    chunks = []
    while chunk := os.read(fd, 1 << 16):  # of more, malloc would map memory for each read
        chunks.append(chunk)
        limit -= len(chunk)
        if limit < 0:
            raise OSError(27, "file too large", path)
    return b"".join(chunks)


def stamp(path: str) -> tuple[int, ...]:
    """Another one whenever the file is another; () where nobody can tell.

    A file that has just changed has none: within one tick of the kernel's clock, which is what a
    file system's times are taken from, it could change again and look the same.
    """
    try:
        status = os.stat(path)  # of a ConfigMap's links only the target changes
    except OSError:
        return ()
    if time.time_ns() - status.st_ctime_ns < _SETTLED_NS:
        return ()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def only_ours(path: str) -> None:
    """Raises ValueError: somebody beside root may have written this. A symlink is nobody's."""
    status = os.lstat(path)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise ValueError("others than its owner may write it")


def replace(path: str, content: bytes, mode: int, size: int = 0, sync: bool = False) -> None:
    """Write beside, then rename: a reader sees the old file or the new one, whole.

    size: grow the file with zeros up to this many bytes. sync: survive a power loss too; a tmpfs
    needs none. The name beside is fixed, so what a kill leaves is overwritten by the next write;
    writers of one path must exclude each other. Raises OSError; nothing is left behind then.
    """
    beside = path + ".new"
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    try:
        fd = os.open(beside, flags, mode)
    except FileExistsError:
        remove(beside)
        fd = os.open(beside, flags, mode)
    try:
        try:
            fill(fd, content, mode, size, sync)
        finally:
            os.close(fd)
        os.rename(beside, path)
    except BaseException:
        remove(beside)
        raise


def fill(fd: int, content: bytes, mode: int, size: int = 0, sync: bool = False) -> None:
    """Write an open, empty file as `replace` does. Raises OSError."""
    os.fchmod(fd, mode)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    if size > len(content):
        # Allocated now, so that a full file system refuses here and not by SIGBUS later.
        os.posix_fallocate(fd, 0, size)
    if sync:
        os.fsync(fd)


def remove_tree(folder: str) -> None:
    """Remove a folder and all in it, links themselves; what is not there, or no folder, is fine."""
    try:
        for name in os.listdir(folder):
            path = f"{folder}/{name}"
            if os.path.isdir(path) and not os.path.islink(path):
                remove_tree(path)
            else:
                remove(path)
        os.rmdir(folder)
    except (FileNotFoundError, NotADirectoryError):
        pass


def remove(path: str) -> None:
    """Remove a file; one that is not there is fine."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
