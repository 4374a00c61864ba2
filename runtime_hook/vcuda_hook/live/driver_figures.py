"""The driver's own limits of containers' cgroups and what it counts, by the agent's last poll.

The file is <state>/driver_limits.json: {allocation id: {GPU UUID: [limit, used]}}, in bytes.
"""

from __future__ import annotations

import json
import os
import time
from collections.abc import Mapping
from typing import NamedTuple

from vcuda_oci.system import files

# Older figures are of an agent that has ended: longer than the longest pause between two polls.
_FRESH_SECONDS = 30.0


class Counted(NamedTuple):
    """limit_bytes: the driver's hard limit. used_bytes: what it counts, contexts and code too."""

    limit_bytes: int
    used_bytes: int


Figures = Mapping[tuple[str, str], Counted]  # by allocation id and GPU UUID


def write(state_dir: str, figures: Figures) -> None:
    """Replace the file. Raises OSError."""
    tree: dict[str, dict[str, Counted]] = {}
    for (id, uuid), counted in figures.items():
        tree.setdefault(id, {})[uuid] = counted
    files.replace(_path(state_dir), json.dumps(tree).encode(), 0o600)


def read(state_dir: str) -> Figures:
    """{}: there are none, they are old, or a user other than root asks."""
    try:
        if time.time() - os.stat(_path(state_dir)).st_mtime > _FRESH_SECONDS:
            return {}
        tree = json.loads(files.read(_path(state_dir)))
    except (OSError, ValueError):
        return {}
    return {
        (id, uuid): Counted(*counted) for id, gpus in tree.items() for uuid, counted in gpus.items()
    }


def _path(state_dir: str) -> str:
    return state_dir + "/driver_limits.json"
