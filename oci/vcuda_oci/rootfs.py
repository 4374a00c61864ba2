"""What the wrapper has to know of the image: only looked at, never followed, opened or mounted."""

from __future__ import annotations

import os
import stat

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

# The loader's default folders by layout; the first that the image has is where its loader looks.
# With libraries there no ldconfig has to run in the container. Source: ld.so(8).
_LAYOUTS = (
    "usr/lib/x86_64-linux-gnu",
    "usr/lib/aarch64-linux-gnu",
    "usr/lib64",
    "lib64",
    "usr/lib",
)


def library_folder(spec: Any, bundle: str) -> str:
    """Where the container's loader finds libraries, as the container sees it.

    The answer chooses between constants, so an image that changes under our eyes can only choose
    another constant; the mount itself is made by the low-level runtime, inside the root.
    """
    root = spec.get("root") if isinstance(spec, dict) else None
    path = root.get("path") if isinstance(root, dict) else None
    if isinstance(path, str):
        rootfs = os.path.join(bundle, path)
        for folder in _LAYOUTS:
            if _is_real_folder(rootfs, folder):
                return "/" + folder
    return "/usr/lib64"


def _is_real_folder(rootfs: str, folder: str) -> bool:
    """Whether each part of `folder` is a directory itself, no symlink out of the image."""
    path = rootfs
    for part in folder.split("/"):
        path = f"{path}/{part}"
        try:
            if not stat.S_ISDIR(os.lstat(path).st_mode):
                return False
        except OSError:
            return False
    return True
