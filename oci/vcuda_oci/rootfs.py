"""What an image's root file system tells: where it is, and where its loader looks for libraries."""

from __future__ import annotations

import os

from . import machine
from .guest.tree import Tree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The loader's default folders by layout, after Debian's; the first that the image has is where its
# loader looks. With libraries there no ldconfig has to run in the container. Source: ld.so(8).
_LAYOUTS = ("/usr/lib64", "/lib64", "/usr/lib")


def path_of(spec: Any, bundle: str) -> str:
    """The image's root on the host; "" where the spec names none."""
    root = spec.get("root") if isinstance(spec, dict) else None
    path = root.get("path") if isinstance(root, dict) else None
    return os.path.join(bundle, path) if isinstance(path, str) else ""


def library_folder(spec: Any, bundle: str) -> str:
    """Where the container's loader finds libraries, as the container sees it.

    The answer chooses between constants, so an image that changes under our eyes can only choose
    another constant; the mount itself is made by the low-level runtime, inside the root.
    """
    try:
        with Tree(path_of(spec, bundle)) as tree:
            for folder in (machine.THIS.multiarch, *_LAYOUTS):
                if tree.folder(folder) == folder:
                    return folder
    except OSError:
        pass
    return "/usr/lib64"
