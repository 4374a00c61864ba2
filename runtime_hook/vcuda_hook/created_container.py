"""The container that a hook is called for, found in /proc."""

from __future__ import annotations

import os

from vcuda_oci import bundle, container_state, files, report
from vcuda_oci.errors import VcudaError

from . import cgroup_folders, syscalls

TYPE_CHECKING = False
if TYPE_CHECKING:
    from vcuda_oci.container_state import State

CREATE_CONTAINER = "createContainer"
_MOST_ANCESTORS = 16


class Container:
    """A container between its namespaces and pivot_root.

    pid: its first process, and `process` a descriptor of its /proc folder. runtime: the command
    line that asks the low-level runtime for a container's state, up to the verb.
    """

    def __init__(self, state: State, pid: int, runtime: list[str]) -> None:
        self.state, self.pid, self.runtime = state, pid, runtime
        self.process = _proc(pid)


def tell_engine(line: str, allocation: str) -> None:
    """The line in the log of the runtime that called this hook; crun shows nothing of its hooks."""
    try:
        pid, _, command = _runtime_above(int(os.readlink("/proc/self")))
        report.log(command, line, allocation, os.readlink(f"/proc/{pid}/cwd"))
    except (OSError, ValueError):
        pass  # called by hand: nobody has a log


def find(kind: str, state: State) -> Container:
    """The container that a hook of this kind is called for. Raises VcudaError.

    A createContainer hook runs in the container's namespaces and cgroup, and the pid it is told is
    0 or 1. It goes back to those of the runtime first, or the container's limits and device rules
    would be its own; /proc is still the host's there. Source: runc 1.1, crun 1.8.
    """
    try:
        if kind == CREATE_CONTAINER:
            pid = _parent(int(os.readlink("/proc/self")))
            host, query, _ = _runtime_above(pid)
            for name in ("mnt", "cgroup"):
                syscalls.setns(os.open(f"/proc/{host}/ns/{name}", os.O_RDONLY | os.O_CLOEXEC))
            cgroup_folders.join(_proc(host))
        else:
            pid = state.pid
            _, query, _ = _runtime_above(int(os.readlink("/proc/self")))
        if pid <= 1:
            raise ProcessLookupError(3, f"no process {pid}")
        return Container(state, pid, query)
    except (OSError, ValueError) as error:
        raise VcudaError(
            f"its process is gone: {error}", container_state.WHERE, container_state.MEND
        ) from error


def _runtime_above(pid: int) -> tuple[int, list[str], bundle.Command]:
    """The nearest ancestor that is creating a container.

    Its pid, the command line that asks it for states up to the verb, and what it was called with.
    """
    for _ in range(_MOST_ANCESTORS):
        pid = _parent(pid)
        if pid <= 0:
            break
        words = files.read(f"/proc/{pid}/cmdline").decode(errors="replace").split("\0")[:-1]
        command = bundle.Command(words[1:])
        if command.creates:
            folder = os.readlink(f"/proc/{pid}/cwd")
            return pid, command.state_query(os.readlink(f"/proc/{pid}/exe"), folder), command
    raise ProcessLookupError(3, "no runtime called this")


def _parent(pid: int) -> int:
    """Source: proc(5), field 4 of /proc/<pid>/stat, counted after the name in parentheses."""
    stat = files.read(f"/proc/{pid}/stat").rpartition(b")")[2].split()
    return int(stat[1])


def _proc(pid: int) -> int:
    return os.open(f"/proc/{pid}", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
