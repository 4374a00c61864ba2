"""Usage pages of containers that have ended, while a process still has one of them.

A process can receive a page from another one and write to it after the container's end. A page
without a name is hard to find: where it is mapped, or sent over a socket and not yet received, no
table shows it. So the page keeps a name, in a folder that root alone enters, until no process has
it. The kernel gives a write lease only on a file that is open once (fs/locks.c,
check_conflicting_open), so a lease shows that no other process has the page. The page then loses
its name, and only then is frozen: the kernel removes no name of a frozen file (fs/namei.c,
may_delete).

A page that is replaced gets its second name first, then loses the one in its container's folder. If
the program is killed in between, the page has both names and still belongs to its container. When
the first name is removed later, the second stays.
"""

from __future__ import annotations

import errno
import fcntl
import os
import time

from . import page_file

# Source: fcntl(2), signal(7). A process that opens a leased file has the kernel send this signal,
# which by default does nothing.
_F_SETSIG, _SIGURG = 10, 23


def replace(page: str, folder: str, content: bytes, mode: int, size: int) -> None:
    """Put a fresh page of `size` at `page`; an existing page keeps a name in `folder`.

    Raises OSError as page_file.replace_page does; nothing has changed then.
    """
    last = _free_name(folder) if _count_names(page) == 1 else ""
    if last:
        page_file.link_page(page, last)
    try:
        page_file.replace_page(page, content, mode, size)
    except BaseException:
        if last:
            os.unlink(last)
        raise
    if last:
        _cut_soon(last, size)


def retire(page: str, folder: str, most: int) -> None:
    """Move a usage page, if any, to `folder`, unless it has a name there. Raises OSError."""
    if _count_names(page) == 1:
        last = _free_name(folder)
        page_file.move_page(page, last)
        _cut_soon(last, most)


def _count_names(page: str) -> int:
    """2: a replacement was killed after it had linked the page into the folder of ended pages."""
    try:
        return os.lstat(page).st_nlink
    except FileNotFoundError:
        return 0


def _free_name(folder: str) -> str:
    return f"{folder}/{time.time_ns():x}"


def _cut_soon(path: str, most: int) -> None:
    try:
        _cut(path, most)
    except OSError:
        pass  # leased: the next `cut` tries again


def cut(folder: str, most: int) -> bool:
    """Cut each page to `most` bytes and remove those that no process has. True: room was freed."""
    freed = False
    for path in paths(folder):
        try:
            freed = _cut(path, most) or freed
        except OSError:
            continue  # leased, being replaced, or removed meanwhile
    return freed


def paths(folder: str) -> list[str]:
    try:
        return [f"{folder}/{name}" for name in os.listdir(folder)]
    except FileNotFoundError:
        return []  # no container has ended


def _cut(path: str, most: int) -> bool:
    if _count_names(path) != 1:
        return False  # still its container's
    freed = page_file.put_back(path, most)
    fd = page_file.open_page(path, os.O_RDWR)
    try:
        cut_open(path, fd, most)
        return freed or not os.fstat(fd).st_nlink
    finally:
        os.close(fd)


def cut_open(path: str, page: int, most: int) -> bool:
    """Do as `cut` for one page that this process has open once. Raises OSError.

    True: the page has lost its name, and no other process has it. This takes at least two calls:
    between the lease and the freeze, a process with an O_PATH descriptor can open the page, and an
    open that began before the freeze may not count yet. So a caller that keeps the descriptor calls
    again, which cuts what such a process wrote.
    """
    links = os.fstat(page).st_nlink
    if links > 1:
        return False  # still its container's
    if links:
        page_file.put_back_open(page, most)
        if not _is_open_once(page):
            return False
        os.unlink(path)
        # An O_PATH descriptor, or a mount namespace that a process keeps, does not count as open.
        page_file.freeze_open(page)
    try:
        os.ftruncate(page, 0)
    except PermissionError:
        pass  # ext4, unlike tmpfs, refuses each change of a frozen file: a late opener's too
    return links == 0 and _is_open_once(page)


def _is_open_once(page: int) -> bool:
    """Whether no other process has the file open or mapped, and no socket holds it in transit."""
    try:
        fcntl.fcntl(page, _F_SETSIG, _SIGURG)
        fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_WRLCK)
    except OSError as error:
        # EINVAL: the host has no leases (fs.leases-enable), so this is unknown. Say yes.
        return error.errno == errno.EINVAL
    fcntl.fcntl(page, fcntl.F_SETLEASE, fcntl.F_UNLCK)
    return True
