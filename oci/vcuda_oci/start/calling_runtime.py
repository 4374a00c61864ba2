"""Find the low-level runtime that called a hook: in /proc, among its ancestors."""

from __future__ import annotations

import os

from ..container import bundle
from ..guest import process
from ..system import files

_MOST_ANCESTORS = 16


def find(pid: int) -> tuple[int, list[str], bundle.Command]:
    """The nearest ancestor that is creating a container.

    Returns its pid, its command line for a query of state up to the verb, and its own command line.
    """
    for _ in range(_MOST_ANCESTORS):
        pid = parent(pid)
        if pid <= 0:
            break
        words = files.read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:-1]
        command = bundle.Command(words[1:])
        if command.creates:
            folder = process.working_folder(pid)
            return pid, command.state_query(_program(pid, words[0]), folder), command
    raise ProcessLookupError(3, "no runtime called this")


def _program(pid: int, called: str) -> str:
    """The runtime's program. crun may run a copy of itself, which has no path ("/")."""
    path = os.readlink(f"/proc/{pid}/exe")
    return path if os.path.isfile(path) else called


def parent(pid: int) -> int:
    """Source: proc(5), field 4 of /proc/<pid>/stat, counted after the name in parentheses."""
    stat = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(stat[1])
