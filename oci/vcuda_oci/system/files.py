"""Read and write whole files: bounded reads that never block, and atomic replacement."""

from __future__ import annotations

import errno
import os
import time

_SETTLED_NS = 10**9
_KIND, _REGULAR = 0o170000, 0o100000  # S_IFMT and S_IFREG of `stat`, which takes time to import


def read(path: str, limit: int = 64 << 20, follow: bool = False) -> bytes:
    """Read a whole file. follow: `path` may be a symlink.

    Raises OSError; EFBIG: the file has more than `limit` bytes.
    """
    fd = _open(path, 0 if follow else os.O_NOFOLLOW)
    try:
        return content(fd, limit, path)
    finally:
        os.close(fd)


def text(path: str, limit: int = 1 << 16) -> str:
    """A whole file as text; "": it cannot be read, or has more than `limit` bytes."""
    try:
        return read(path, limit).decode("utf-8", "replace")
    except OSError:
        return ""


def read_settings(path: str, limit: int = 64 << 20) -> bytes:
    """Read a settings file; `path` may be a symlink.

    Raises VcudaError: another user could have changed the file, or it is not a regular file.
    """
    try:
        fd = _open(path, os.O_NOFOLLOW)
    except OSError as error:
        if error.errno not in (errno.ELOOP, errno.ENXIO):
            raise
        from . import trusted_file  # late: a regular file of root does not need it

        if error.errno == errno.ENXIO:  # a socket
            raise trusted_file.not_regular(path) from error
        return trusted_file.read_linked(path, read)
    try:
        status, owners = os.fstat(fd), (0, os.geteuid())
        for each in (status, os.stat(os.path.dirname(path) or ".")):
            if each.st_uid not in owners or each.st_mode & 0o022:
                from . import trusted_file  # late, as above

                trusted_file.check(path, fd, status)
        if status.st_mode & _KIND != _REGULAR:  # a FIFO would read as empty
            from . import trusted_file  # late, as above

            raise trusted_file.not_regular(path)
        return content(fd, limit, path)
    except FileNotFoundError as error:  # the folder is missing; a missing file means the defaults
        raise OSError(errno.ESTALE, os.strerror(errno.ESTALE), path) from error
    finally:
        os.close(fd)


def _open(path: str, flags: int) -> int:
    # O_NONBLOCK: a FIFO and a leased file must not block the open.
    return os.open(path, flags | os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)


def content(fd: int, limit: int, path: str) -> bytes:
    """Read an open file to its end. path: for the error. Raises OSError as `read` does."""
    chunks = []
    while chunk := os.read(fd, 1 << 16):  # malloc maps new memory for each larger read
        chunks.append(chunk)
        limit -= len(chunk)
        if limit < 0:
            raise OSError(27, "file too large", path)
    return b"".join(chunks)


def stamp(path: str) -> tuple[int, ...]:
    """A value that changes when the file changes; (): unknown, so do not use a cached copy.

    A file that changed less than a second ago has no stamp: file times have the resolution of the
    kernel's clock tick, so a second change within one tick would leave the same times.
    """
    try:
        status = os.stat(path)  # follow links: when a ConfigMap changes, only the target does
    except OSError:
        return ()
    if time.time_ns() - status.st_ctime_ns < _SETTLED_NS:
        return ()
    times = (status.st_mtime_ns, status.st_ctime_ns)
    return (status.st_dev, status.st_ino, status.st_size, *times)


def read_ours(path: str, limit: int) -> str:
    """Read a text file that only root and this process's user may write.

    Raises OSError as `read` does; ValueError: others may write it, a symlink, or not UTF-8.
    """
    status = os.lstat(path)
    if status.st_uid not in (0, os.geteuid()) or status.st_mode & 0o022:
        raise ValueError("other users may write it")
    return read(path, limit).decode()


def replace(path: str, content: bytes, mode: int, size: int = 0, sync: bool = False) -> None:
    """Write `path`.new, then rename it to `path`: a reader sees the old file or the new one.

    size: extend the file with zeros to this many bytes. sync: call fsync, to survive a power loss.
    Raises OSError and removes the new file. A killed writer leaves `path`.new, which the next write
    removes; so only one writer at a time may replace a path.
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
    """Write the content of an open, empty file; parameters as in `replace`. Raises OSError."""
    os.fchmod(fd, mode)
    view = memoryview(content)
    while view:
        view = view[os.write(fd, view) :]
    if size > len(content):
        # Allocate now: on a full file system a later access to a mapped hole raises SIGBUS.
        os.posix_fallocate(fd, 0, size)
    if sync:
        os.fsync(fd)


def remove_tree(folder: str) -> None:
    """Remove a folder and its content; follow no link. Ignore a missing path and a non-folder."""
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
    """Remove a file if it exists."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        pass
