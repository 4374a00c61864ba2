"""An overlay in a private mount namespace: the container's writes leave no trace on the host."""

from __future__ import annotations

import os

from vcuda_oci.model.errors import VcudaError

from ..hooks.syscalls import mount, unshare

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV = 2, 4
MS_REC, MS_SLAVE = 0x4000, 0x80000


def private_scratch(folder: str) -> None:
    """Move this process into a mount namespace where `folder` is an empty tmpfs.

    The kernel removes the tmpfs with the namespace's last process, so nothing has to be cleaned up.
    Mounts and unmounts of the host still propagate here (slave), so that this process keeps no
    volume busy. Raises VcudaError: not root, or no right.
    """
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        unshare(CLONE_NEWNS)
        mount("none", "/", None, MS_REC | MS_SLAVE, None)
        mount("vcuda-run", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700")
    except OSError as error:
        raise VcudaError(
            f"no private mount namespace: {error.strerror}",
            folder,
            "run as root, with CAP_SYS_ADMIN",
        ) from error


def mount_above(lower: str, scratch: str) -> None:
    """Mount an overlay above `lower` at `scratch`/root; written files stay in `scratch`.

    Other file systems mounted below `lower` are not included. Raises VcudaError: no such folder, or
    the kernel refuses it as a lower layer.
    """
    try:
        lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise VcudaError(
            f"cannot be opened: {error.strerror}", lower, "name a root file system's folder"
        ) from error
    try:
        for name in ("upper", "work", "root"):
            os.mkdir(f"{scratch}/{name}", 0o755)
        # Descriptors and relative names: a comma or colon in a path would split the options.
        os.chdir(scratch)
        options = f"lowerdir=/proc/self/fd/{lower_fd},upperdir=upper,workdir=work"
        mount("overlay", scratch + "/root", "overlay", MS_NODEV, options)
    except OSError as error:
        raise VcudaError(
            f"no overlay above it: {error.strerror}",
            lower,
            "name a folder that is not on an overlay itself with --rootfs",
        ) from error
    finally:
        os.close(lower_fd)
