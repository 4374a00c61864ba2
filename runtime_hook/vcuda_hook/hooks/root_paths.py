"""Open and create files in a container's root without leaving it, and only where it owns them.

The image chooses its paths, and other containers may change them meanwhile: openat2 resolves each
path inside the root, and later steps use the descriptor, never the path. Source: CVE-2024-0132,
-0133, -0134.

A path inside may also lead into a volume, such as the host's /dev, where a change would be a change
of the host. A mount belongs to the container if it is its root's, or a tmpfs that the runtime's
mount namespace does not have. In other mounts nothing is created or removed; a mount over an
existing file is allowed, because only the container sees it.
"""

from __future__ import annotations

import errno
import os
import stat

from vcuda_oci.system import kernel_tables

from . import syscalls

_IN_ROOT = syscalls.RESOLVE_IN_ROOT | syscalls.RESOLVE_NO_MAGICLINKS
# A name that was missing a moment ago is created and opened without following links: a symlink that
# appears meanwhile is an error.
_ITSELF = syscalls.RESOLVE_BENEATH | syscalls.RESOLVE_NO_SYMLINKS
_TMPFS = 0x01021994


class Root:
    """A container's root, by an O_PATH descriptor.

    host_devices: the file systems of the runtime's mount namespace, by st_dev. shared: ids of the
    container's mounts that propagate new mounts elsewhere.
    """

    def __init__(
        self,
        descriptor: int,
        host_devices: frozenset[int] = frozenset(),
        shared: frozenset[int] = frozenset(),
    ) -> None:
        self._root, self._host_devices, self._shared = descriptor, host_devices, shared
        self._mount = syscalls.mount_id(descriptor)

    def is_own(self, place: int) -> bool:
        """Whether what is created at this descriptor belongs to the container alone."""
        if syscalls.mount_id(place) == self._mount:
            return True
        is_fresh = os.fstat(place).st_dev not in self._host_devices
        return is_fresh and syscalls.file_system_type(place) == _TMPFS

    def is_shared(self, place: int) -> bool:
        """Whether a mount over this part of a volume would also appear on the host."""
        mount = syscalls.mount_id(place)
        return mount != self._mount and mount in self._shared

    def open_path(self, path: str) -> int | None:
        """An O_PATH descriptor of `path`, with symlinks resolved inside the root; None: it does not
        exist.
        """
        try:
            return syscalls.openat2(self._root, path, os.O_PATH, _IN_ROOT)
        except FileNotFoundError:
            return None

    def make_folder(self, path: str) -> int:
        """An O_PATH descriptor of the folder; it and its parents are created if missing."""
        parts = [part for part in path.split("/") if part]
        found = os.dup(self._root)
        for depth, part in enumerate(parts, 1):
            inner = self.open_path("/".join(parts[:depth]))
            if inner is None:
                try:
                    self.must_own(found)
                    os.mkdir(part, 0o755, dir_fd=found)
                    inner = syscalls.openat2(found, part, os.O_PATH | os.O_DIRECTORY, _ITSELF)
                finally:
                    os.close(found)
            else:
                os.close(found)
            found = inner
        return found

    def make_file(self, path: str) -> int:
        """An O_PATH descriptor of the file; an empty one is created if missing."""
        found = self.open_path(path)
        if found is not None:
            return found
        folder = self.make_folder(os.path.dirname(path))
        try:
            self.must_own(folder)
            name = os.path.basename(path)
            flags = os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_WRONLY | os.O_CLOEXEC
            os.close(os.open(name, flags, 0o644, dir_fd=folder))
            return syscalls.openat2(folder, name, os.O_PATH, _ITSELF)
        finally:
            os.close(folder)

    def make_target(self, path: str, source: int) -> int:
        """The target for a mount of `source`: a folder for a folder, else a file."""
        is_folder = stat.S_ISDIR(os.fstat(source).st_mode)
        return self.make_folder(path) if is_folder else self.make_file(path)

    def must_own(self, place: int) -> None:
        """Raises OSError (EXDEV): the descriptor is in a volume."""
        if not self.is_own(place):
            raise OSError(errno.EXDEV, "it is missing, and would be made in a volume")


def host_devices() -> frozenset[int]:
    """The file systems of this process's mount namespace, by st_dev."""
    return frozenset(mount.device for mount in kernel_tables.mounts())


def shared_mounts(process: int) -> frozenset[int]:
    """The ids of a process's mounts that are in a peer group. process: its folder in /proc."""
    return frozenset(mount.id for mount in kernel_tables.mounts(process) if mount.is_shared)
