"""Read a settings file that may be a link, as the kubelet mounts a ConfigMap.

A kubelet's ConfigMap volume holds ``config.toml -> ..data/config.toml`` and
``..data -> ..2026_11_22_21_00_00.1``; an update renames a new ``..data`` over the old one and then
removes the old folder. A link is followed only where no other user could have chosen its target:
each entry on the way belongs to root or to this process's user, and each folder on the way is
writable by its owner only, is sticky, or lies on a read-only mount (the volume's own folder has
mode 0777, and a pod sees it read-only).
"""

from __future__ import annotations

import errno
import os
import stat

from . import files

_MOST_LINKS = 16
_TRIES = 10  # a ConfigMap can be updated between two steps of one walk


def read(path: str, limit: int = 64 << 20) -> bytes:
    """The whole file behind the link `path`. Raises OSError, also if others could change a link."""
    for remaining in reversed(range(_TRIES)):
        try:
            return _read_linked(path, limit)
        except FileNotFoundError:
            if not remaining:  # no default settings for a link that is broken
                raise _refused("a link to a file that is missing", path) from None
    raise AssertionError


def _read_linked(path: str, limit: int) -> bytes:
    pending = os.path.abspath(path).split("/")[1:]
    links = 0
    # Open folders from / down to where the walk stands, so that ".." steps back along it.
    way = [os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)]
    try:
        while pending:
            name = pending.pop(0)
            if name in ("", "."):
                continue
            if name == "..":
                if len(way) > 1:
                    os.close(way.pop())
                continue
            _check_folder(way[-1], path)
            entry = os.open(name, os.O_PATH | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=way[-1])
            way.append(entry)
            kind = os.fstat(entry)
            _check_owner(kind, name, path)
            if stat.S_ISLNK(kind.st_mode):
                links += 1
                if links > _MOST_LINKS:
                    raise OSError(errno.ELOOP, "too many links", path)
                target = os.readlink("", dir_fd=entry)
                os.close(way.pop())
                pending = target.split("/") + pending
                if target.startswith("/"):
                    while len(way) > 1:
                        os.close(way.pop())
        if kind.st_mode & 0o022:
            raise _refused("others than the file's owner may write it", path)
        return files.read(f"/proc/self/fd/{way[-1]}", limit, follow=True)
    finally:
        for fd in way:
            os.close(fd)


def _check_folder(fd: int, path: str) -> None:
    mode = os.fstat(fd).st_mode
    if mode & 0o022 and not mode & stat.S_ISVTX and not os.fstatvfs(fd).f_flag & os.ST_RDONLY:
        folder = os.readlink(f"/proc/self/fd/{fd}")
        raise _refused(f"a link that others than its owner may change, in {folder}", path)


def _check_owner(status: os.stat_result, name: str, path: str) -> None:
    if status.st_uid not in (0, os.geteuid()):
        raise _refused(f"a link that leads by '{name}', which uid {status.st_uid} owns", path)


def _refused(why: str, path: str) -> OSError:
    return OSError(errno.EPERM, why, path)
