"""Check that no other user could have changed a settings file, as the launcher does.

oci/launcher/settings/trusted.c applies the same rules.

The file and its folder must belong to root or to this process's user, and no other user may have
write permission. Group write permission is accepted for root's group and for this process's group,
because umask 002 gives it to every file, unless an access control list names more users. A folder
may also be sticky or on a read-only mount: a ConfigMap volume has mode 0777 and is mounted
read-only in a pod.

A symlink is followed if each folder on its path, from / on, passes the same check and each entry
has one of these owners. A ConfigMap volume holds ``config.toml -> ..data/config.toml`` and
``..data -> ..2026_11_22_21_00_00.1``; an update renames a new ``..data`` over the old one and then
removes the old folder.

In a user namespace that does not map the host's root, root's files show the overflow uid. It is
accepted there, because such a process has no rights on the host beyond those of its user.
"""

from __future__ import annotations

import errno
import os
import stat

from ..model.errors import VcudaError
from . import kernel_tables

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

_MOST_LINKS = 16
_TRIES = 10  # an update of the ConfigMap can remove the folder during one attempt
_NO_NUMBER = 65534  # Source: linux/highuid.h, DEFAULT_OVERFLOWUID
_ACL = "system.posix_acl_access"


def read_linked(path: str, read: Callable[[str], bytes]) -> bytes:
    """Have `read` read the target of the symlink `path`. Raises VcudaError, OSError."""
    for _ in range(_TRIES):
        try:
            return read(_target(path))
        except FileNotFoundError:
            continue
    # Not FileNotFoundError: a missing settings file means the defaults.
    raise VcudaError("a link to a file that is missing", path, "link it to one that is there")


def check(path: str, fd: int, status: os.stat_result) -> None:
    """Check the open settings file `fd`, which is not a link, and its folder.

    Raises VcudaError, OSError.
    """
    _check_owner(path, status)
    _check_mode(path, status, fd)
    _check_folder(os.path.dirname(path) or ".")


def not_regular(path: str) -> VcudaError:
    return VcudaError("is not a regular file", path, "make it a readable UTF-8 file")


def _target(path: str) -> str:
    """Resolve the path and check every step. Raises VcudaError, OSError.

    Paths are safe here: if its parent folders pass the check, no other user can replace an entry.
    """
    pending = os.path.join(os.getcwd(), path).split("/")
    place, links = "", 0
    while pending:
        name = pending.pop(0)
        if name in ("", "."):
            continue
        if name == "..":
            place = place.rpartition("/")[0]
            continue
        _check_folder(place or "/")
        place += "/" + name
        status = os.lstat(place)
        _check_owner(place, status)
        if stat.S_ISLNK(status.st_mode):
            links += 1
            if links > _MOST_LINKS:
                raise VcudaError("too many links", path, "link it to the file itself")
            target = os.readlink(place)
            place = "" if target.startswith("/") else place.rpartition("/")[0]
            pending = target.split("/") + pending
    _check_mode(place, status)
    if not stat.S_ISREG(status.st_mode):
        raise not_regular(path)
    return place


def _check_folder(folder: str) -> None:
    status = os.stat(folder)
    _check_owner(folder, status)
    is_fixed = status.st_mode & stat.S_ISVTX or os.statvfs(folder).f_flag & os.ST_RDONLY
    if not is_fixed:
        _check_mode(folder, status)


def _check_owner(place: str, status: os.stat_result) -> None:
    owner = status.st_uid
    if owner in (0, os.geteuid()) or (owner == _NO_NUMBER and not kernel_tables.maps_all_users()):
        return
    what = f"uid {owner} owns it and could change the settings"
    raise VcudaError(what, place, f"chown root {place}")


def _check_mode(place: str, status: os.stat_result, fd: int | None = None) -> None:
    group_writes = status.st_mode & stat.S_IWGRP
    is_own_group = status.st_gid in (0, os.getegid())
    is_closed = is_own_group and _is_plain(place if fd is None else fd)
    if status.st_mode & stat.S_IWOTH or (group_writes and not is_closed):
        what = "other users may write it and could change the settings"
        raise VcudaError(what, place, f"chmod go-w {place}")


def _is_plain(place: str | int) -> bool:
    """Whether it has no access control list. With one, the mode's group bits show its mask."""
    try:
        os.getxattr(place, _ACL)
    except OSError as error:  # any other error could hide a list
        return error.errno in (errno.ENODATA, errno.ENOTSUP)
    return False
