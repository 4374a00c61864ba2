"""Remove the mount points that the low-level runtime made in a container's root.

The runtime makes an empty file in the root for each mount destination that the image lacks. A note
in the container's folder lists our mounts' destinations. When the container has ended,
oci/launcher/hooks/mount_points.c removes those files.
"""

from __future__ import annotations

import os

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable

_NAME = "mount-points"
# <prefix>/lib/vcuda/python/vcuda_oci/guest/mount_points.py
_PREFIX = os.path.abspath(__file__).rsplit("/", 6)[0]
_PROGRAM = _PREFIX + "/bin/vcuda-container-hook"
_WRITE = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC


def note(folder: str, root: str, places: Iterable[str]) -> None:
    """Write the note, before the runtime makes any mount point.

    If it cannot be written, the container starts nevertheless, and its mount points remain.
    """
    try:
        fd = os.open(f"{folder}/{_NAME}", _WRITE, 0o600)
        try:
            os.write(fd, _text(root, places))
        finally:
            os.close(fd)
    except OSError:
        pass


def remove(folder: str) -> None:
    """Remove the mount points that the container's note lists, if there is a note.

    Needs the ledger's lock: a new container with the same id must not have mounts there yet.
    """
    try:
        fd = os.open(f"{folder}/{_NAME}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _run(fd)
    finally:
        os.close(fd)


def remove_since(config: str, root: str, places: Iterable[str], at_end_of: int = 0) -> None:
    """Remove mount points in `root` at `places` that are newer than `config`; needs no note.

    config: path of the container's config.json. at_end_of: pid of the container's first process: a
    new process does this when that one ends, and has the root open until then, so that it cannot
    be unmounted. Raises OSError: config.json does not exist.
    """
    since_ns = os.stat(config).st_mtime_ns
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    try:
        os.write(fd, _text(root, places))
        os.utime(fd, ns=(since_ns, since_ns))
        _run(fd, at_end_of)
    finally:
        os.close(fd)


def _text(root: str, places: Iterable[str]) -> bytes:
    # errors="replace" affects no mount: runtimes refuse a config.json with a lone surrogate.
    paths = (os.path.abspath(root), *places)
    return b"".join(path.encode(errors="replace") + b"\0" for path in paths)


def _run(note: int, at_end_of: int = 0) -> None:
    command = [_PROGRAM, "removeMountPoints", *([str(at_end_of)] if at_end_of else [])]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, note, 0)]
        os.waitpid(os.posix_spawn(_PROGRAM, command, {}, file_actions=actions), 0)
    except OSError:
        pass  # neither the container's start nor its end must fail because of this
