"""Find the folder in which an image's loader looks for libraries."""

from __future__ import annotations

from ..guest.tree import Tree
from ..system import machine
from .container import Container

# A loader searches its libc's folder even without a cache, so no ldconfig has to run in the
# container. It may skip the other folders: Debian's loader skips lib64. Source: ld.so(8).
_LIBC = ("libc.so.6",)
_LIB64 = ("/usr/lib64", "/lib64", "/usr/lib", "/lib")


def library_folder(container: Container) -> str:
    """The folder of the image's libc, as the container sees it.

    For an image without a libc, the first of the usual folders that it has. The result is always
    one of these constants, so an image that changes meanwhile can only lead to another of them. The
    low-level runtime makes the mount, inside the container's root.
    """
    debians = machine.THIS.multiarch
    usual = (debians, debians.removeprefix("/usr"), *_LIB64)
    first = ""
    try:
        with Tree(container.rootfs) as tree:
            for folder in usual:
                if tree.folder(folder) != folder:
                    continue
                if tree.present(folder, _LIBC):
                    return folder
                first = first or folder
    except OSError:
        pass
    return first or "/usr/lib64"
