"""Usage pages of containers that have ended, while a process still has one of them.

A process can receive a page from another process and write to it after the container's end. No
table in /proc shows a page that is mapped, sent over a socket and not yet received, or held by an
O_PATH descriptor. So before a page's name is removed, its file handle is recorded, as the name of a
symbolic link in a folder that only root can enter. The handle opens the page as long as any process
has it. Afterwards the handle is stale, and the record is removed.

A program that is killed between the record and the removal leaves the record of a page that still
belongs to its container; so a page that still has a name is never cut.
"""

from __future__ import annotations

import errno
import fcntl
import os

from . import file_handle, page_file

# Source: fcntl(2), signal(7). A process that opens a leased file has the kernel send this signal,
# which by default does nothing.
_F_SETSIG, _SIGURG = 10, 23
# No handles on this file system, or none for this process: such a page is removed without a record.
_NO_HANDLES = (errno.EOPNOTSUPP, errno.ENOSYS, errno.EPERM)


def replace(page: str, folder: str, content: bytes, mode: int, size: int) -> None:
    """Put a fresh page of `size` at `page` and record the old page, if any, in `folder`.

    Raises OSError as page_file.replace_page does, and leaves the old page.
    """
    record = _record(page, folder)
    page_file.replace_page(page, content, mode, size)
    _cut_soon(record, size)


def remove(pages: str, folder: str, most: int) -> None:
    """Remove the folder `pages` of a container and record its usage page, if any, in `folder`.

    most: bytes that the page may have. Raises OSError; the page then has its name, a record or
    both.
    """
    record = _record(pages + "/usage", folder)
    page_file.remove_pages(pages)
    _cut_soon(record, most)


def _record(page: str, folder: str) -> str:
    """The path of the page's record; "": there is no page, or no handle opens it."""
    try:
        record = file_handle.of(page, folder)
        page_file.status(record)
        os.symlink(".", record)
    except FileNotFoundError:
        return ""
    except FileExistsError:
        pass
    except OSError as error:
        if error.errno in _NO_HANDLES:
            return ""
        raise
    return record


def _cut_soon(record: str, most: int) -> None:
    try:
        if record:
            _cut(record, most)
    except OSError:
        pass  # leased: the next `cut` tries again


def cut(folder: str, most: int) -> bool:
    """Cut each page to `most` bytes; remove the record of a page that no process has.

    Returns whether a page was longer.
    """
    freed = False
    for record in records(folder):
        try:
            freed = _cut(record, most) or freed
        except OSError:
            continue  # leased, or removed meanwhile
    return freed


def records(folder: str) -> list[str]:
    """The paths of the records."""
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except FileNotFoundError:
        return []  # no container has ended yet


def is_removed(record: str) -> bool:
    """Remove a record if no process has its page. Raises OSError."""
    try:
        page_file.status(record)
        return False
    except OSError as error:
        if error.errno != errno.ESTALE:
            raise
    os.unlink(record)
    return True


def _cut(record: str, most: int) -> bool:
    if is_removed(record) or page_file.status(record).st_nlink:
        return False
    return page_file.restore(record, most)


def is_open_once(page: int) -> bool:
    """Whether no other process has the file open or mapped, and no socket holds it in transit.

    O_PATH descriptors do not count.
    """
    try:
        fcntl.fcntl(page, _F_SETSIG, _SIGURG)
        fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        # EINVAL: the host has no leases (fs.leases-enable), so no process can take one either.
        return error.errno == errno.EINVAL
    fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
