"""Where the loader of an image looks for libraries."""

from __future__ import annotations

from ..guest.tree import Tree
from ..system import machine
from .container import Container

# A loader searches the folder of its libc without a cache, so no ldconfig has to run in the
# container. It may not search the others: Debian's searches no lib64. Source: ld.so(8).
_LIBC = ("libc.so.6",)
_LIB64 = ("/usr/lib64", "/lib64", "/usr/lib", "/lib")


def library_folder(container: Container) -> str:
    """Where the container's loader finds libraries, as the container sees it: beside its libc.

    An image without a libc gets the first of the usual folders that it has.

    The answer chooses between constants, so an image that changes under our eyes can only choose
    another constant; the mount itself is made by the low-level runtime, inside the root.
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
