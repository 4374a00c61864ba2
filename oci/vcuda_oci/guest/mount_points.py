"""Record our mounts in a container's root; remove the mount points that were made for them.

The low-level runtime makes an empty file in the root for each mount whose destination the image
lacks. The note lists the mounts' destinations; oci/launcher/mount_points.h removes those files when
the container has ended.
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
    """Write the note into the container's folder, before the runtime makes any mount point.

    Without room for the note the container starts all the same, and its mount points stay.
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
    """Remove the mount points that the note in the container's folder names, if there is a note.

    Needs the ledger's lock: a container that comes back under the same id must not have mounts
    there yet.
    """
    try:
        fd = os.open(f"{folder}/{_NAME}", os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return
    try:
        _run(fd)
    finally:
        os.close(fd)


def remove_since(config: str, root: str, places: Iterable[str]) -> None:
    """Without a note, remove mount points made in `root` at these places since `config` was made.

    config: the container's config.json. Raises OSError: there is none.
    """
    _run_since(config, root, places)


def remove_at_end(pid: int, config: str, root: str, places: Iterable[str]) -> None:
    """Start a process that does the same when the container's first process, `pid`, has ended.

    Until then it keeps the root open, so the root cannot be unmounted. Raises OSError: there is no
    config.json.
    """
    _run_since(config, root, places, str(pid))


def _run_since(config: str, root: str, places: Iterable[str], *pid: str) -> None:
    since_ns = os.stat(config).st_mtime_ns
    fd = os.memfd_create(_NAME, os.MFD_CLOEXEC)
    try:
        os.write(fd, _text(root, places))
        os.utime(fd, ns=(since_ns, since_ns))
        _run(fd, *pid)
    finally:
        os.close(fd)


def _text(root: str, places: Iterable[str]) -> bytes:
    # Runtimes read no config.json that has a lone surrogate in a path.
    paths = (os.path.abspath(root), *places)
    return b"".join(path.encode(errors="replace") + b"\0" for path in paths)


def _run(note: int, *pid: str) -> None:
    words = [_PROGRAM, "removeMountPoints", *pid]
    try:
        actions = [(os.POSIX_SPAWN_DUP2, note, 0)]
        os.waitpid(os.posix_spawn(_PROGRAM, words, {}, file_actions=actions), 0)
    except OSError:
        pass  # neither the container's start nor its end must fail because of this
