"""Cut pages that have neither a name nor a record to 0 bytes, where a process has them open.

No path leads to such a page, so it is found by the descriptors in /proc. Only a claim on a full
state folder searches /proc. A page without a descriptor in any process (the page keeper included)
is not found: one that is mapped and closed, or sent over a socket and not yet received.
"""

from __future__ import annotations

import os
import time

from ..system import kernel_tables
from . import process

# Bound on the whole search: a user can open a million descriptors.
_MOST_SECONDS = 5.0


def cut_back(state_dir: str) -> bool:
    """Cut such pages; return whether there was one. Does nothing unless vcuda has its own tmpfs."""
    device = _own_tmpfs(state_dir)
    if not device:
        return False
    found, deadline = False, time.monotonic() + _MOST_SECONDS
    for pid in process.pids():
        try:
            links = process.links_of(pid)
        except OSError:
            continue  # it has ended
        for link in links:
            if time.monotonic() > deadline:
                return found
            try:
                # Most files are on other devices, and stat is cheaper than pinning each file.
                if process.device_of(link) == device:
                    with process.Pinned(link) as file:
                        found = _cut(file, device) or found
            except OSError:
                continue  # closed meanwhile, leased, or not one of our pages
    return found


def _own_tmpfs(state_dir: str) -> int:
    """The device of the tmpfs that is mounted at the state folder, where only root can make files;
    0: none."""
    try:
        status = os.stat(state_dir)
    except FileNotFoundError:
        return 0
    if status.st_uid != os.geteuid() or status.st_mode & 0o022:
        return 0
    for mount in kernel_tables.mounts():
        if (mount.device, mount.root, mount.kind) == (status.st_dev, "/", "tmpfs"):
            is_root = status.st_dev != os.stat(os.path.dirname(state_dir)).st_dev
            return status.st_dev if is_root else 0
    return 0


def _cut(file: process.Pinned, device: int) -> bool:
    """Cut the file if it is a page without a name; return whether it had data. Raises OSError."""
    status = file.status()
    if status.device != device or status.links or not (status.is_regular and status.blocks):
        return False
    fd = file.open(os.O_WRONLY)
    try:
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)
    return True
