"""Pages of containers that are gone, held open by a process that was handed them: cut to nothing.

No name leads to them any more, so they are found where they are open. For a state folder that is
full: nobody else looks through all of /proc.
"""

from __future__ import annotations

import os
import stat


def cut_back(state_dir: str) -> bool:
    """Whether there was any. Only on a file system of its own, where every file is ours."""
    device = os.stat(state_dir).st_dev
    if device == os.stat(os.path.dirname(state_dir)).st_dev:
        return False
    found = False
    for pid in filter(str.isdigit, os.listdir("/proc")):
        try:
            links = [f"/proc/{pid}/fd/{number}" for number in os.listdir(f"/proc/{pid}/fd")]
        except OSError:
            continue  # it has ended
        for link in links:
            found = _cut(link, device) or found
    return found


def _cut(link: str, device: int) -> bool:
    try:
        file = os.stat(link)
        if file.st_dev != device or file.st_nlink or not stat.S_ISREG(file.st_mode):
            return False
        os.truncate(link, 0)
    except OSError:
        return False  # closed meanwhile
    return file.st_blocks > 0
