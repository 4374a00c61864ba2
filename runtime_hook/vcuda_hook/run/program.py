"""Find the program of `vcuda run` in the container's root before a share is claimed, so that the
exit code is a shell's.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Sequence
from typing import Any

from vcuda_oci.container.container import container_of
from vcuda_oci.host import driver_files
from vcuda_oci.model.errors import VcudaError

from ..hooks import root_paths

NOT_EXECUTABLE, NOT_FOUND = 126, 127
_HINT = "name a program of the container's root file system"


def check(tree: Any, root: str, mounted: Sequence[str]) -> None:
    """Raises VcudaError with an exit code. Does not check programs in volumes or of the driver,
    such as nvidia-smi: they are mounted later.

    tree: a config.json. root: the folder that becomes the container's root. mounted: destinations
    of the settings' extra mounts.
    """
    process = tree["process"]
    program, cwd = str(process["args"][0]), str(process.get("cwd") or "/")
    if os.path.basename(program) in driver_files.BINARIES:
        return
    folders = [cwd]
    if "/" not in program:
        folders = container_of(tree).environment.get("PATH", "").split(":")
    paths = [os.path.normpath(os.path.join("/", folder or cwd, program)) for folder in folders]
    volumes = [
        str(mount.get("destination"))
        for mount in tree.get("mounts", ())
        if str(mount.get("source")).startswith("/")
    ]
    for volume in (*volumes, *mounted):
        folder = volume.rstrip("/") + "/"
        if any((path + "/").startswith(folder) for path in paths):
            return
    found = [_mode_of(path, root) for path in paths]
    if any(stat.S_ISREG(mode) and mode & 0o111 for mode in found):
        return
    what, code = "no such program in the container", NOT_FOUND
    if any(found):
        what, code = "cannot be executed", NOT_EXECUTABLE
    error = VcudaError(what, program, _HINT)
    error.exit_code = code
    raise error


def _mode_of(path: str, root: str) -> int:
    """The mode of a file; 0: it does not exist."""
    folder = os.open(root, os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        fd = root_paths.Root(folder).open_path(path)
        if fd is None:
            return 0
        try:
            return os.fstat(fd).st_mode
        finally:
            os.close(fd)
    except OSError:
        return 0
    finally:
        os.close(folder)
