"""Pages of containers that are gone, held open by a process that was handed them: cut to nothing.

No name leads to them any more, so they are found where they are open. For a state folder that is
full: nothing else looks through all of /proc. Not found is a page that is in no table of
descriptors, the page keeper's included: mapped and closed, or sent over a socket and not yet
received.
"""

from __future__ import annotations

import os
import time

from . import kernel_tables, page_file, process

# For all processes together: a user can have a million descriptors.
_MOST_SECONDS = 5.0


def cut_back(state_dir: str) -> bool:
    """Whether there was any. Only where each file of the file system is ours."""
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
                # Most are elsewhere, and what only looks is cheaper than to pin each.
                if process.device_of(link) == device:
                    with process.Pinned(link) as file:
                        found = _cut(file, device) or found
            except OSError:
                continue  # closed meanwhile, leased, or no page of ours
    return found


def _own_tmpfs(state_dir: str) -> int:
    """The device of the tmpfs whose root is the state folder, in which root alone can make files;
    0: it is on no such."""
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
    """Whether it was one, and held anything. Raises OSError: it cannot be cut."""
    status = file.status()
    if status.device != device or status.links or not status.is_regular:
        return False
    if not status.blocks:
        return False
    try:
        fd = file.open(os.O_WRONLY)
    except PermissionError:
        fd = page_file.open_frozen(file.path)
    try:
        os.ftruncate(fd, 0)
    finally:
        os.close(fd)
    return True
