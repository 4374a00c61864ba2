"""A container's files without a trace on the host: an overlay in a mount namespace of its own."""

from __future__ import annotations

import ctypes
import os

from vcuda_oci.model.errors import VcudaError

CLONE_NEWNS = 0x00020000
MS_NOSUID, MS_NODEV = 2, 4
MS_REC, MS_SLAVE = 0x4000, 0x80000

_libc = ctypes.CDLL(None, use_errno=True)


def private_scratch(folder: str) -> None:
    """Move this process into a mount namespace where `folder` is an empty tmpfs.

    The kernel takes the tmpfs away with the last process of the namespace, however it dies, so
    there is nothing to clean up. Host mounts that come and go still do so here (slave): we must not
    be what keeps a volume busy. Raises VcudaError: not root, or no such right.
    """
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if _libc.unshare(CLONE_NEWNS) != 0:
            raise _last_error()
        _mount("none", "/", None, MS_REC | MS_SLAVE, None)
        _mount("vcuda-run", folder, "tmpfs", MS_NOSUID | MS_NODEV, "mode=0700")
    except OSError as error:
        raise VcudaError(
            f"no private mount namespace: {error.strerror}",
            folder,
            "run as root, with CAP_SYS_ADMIN",
        ) from error


def mount_above(lower: str, scratch: str) -> str:
    """Mount an overlay on the lower layer `lower`; written files stay in `scratch`.

    Its place is the answer. Other file systems mounted below `lower` are not part of it. Raises
    VcudaError: no such folder, or the kernel refuses it as a lower layer.
    """
    try:
        lower_fd = os.open(lower, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    except OSError as error:
        raise VcudaError(
            f"cannot be opened: {error.strerror}", lower, "name a root file system's folder"
        ) from error
    root = scratch + "/root"
    try:
        for name in ("upper", "work", "root"):
            os.mkdir(f"{scratch}/{name}", 0o755)
        # By descriptor and by relative names: no comma or colon in a path can split the options.
        os.chdir(scratch)
        options = f"lowerdir=/proc/self/fd/{lower_fd},upperdir=upper,workdir=work"
        _mount("overlay", root, "overlay", MS_NODEV, options)
    except OSError as error:
        raise VcudaError(
            f"no overlay above it: {error.strerror}",
            lower,
            "name a folder that is not on an overlay itself with --rootfs",
        ) from error
    finally:
        os.close(lower_fd)
    return root


def _mount(source: str, target: str, kind: str | None, flags: int, data: str | None) -> None:
    words = [word.encode() if word is not None else None for word in (source, target, kind, data)]
    if _libc.mount(words[0], words[1], words[2], ctypes.c_ulong(flags), words[3]) != 0:
        raise _last_error()


def _last_error() -> OSError:
    number = ctypes.get_errno()
    return OSError(number, os.strerror(number))
