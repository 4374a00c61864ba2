"""Find the container that a hook is called for, in /proc."""

from __future__ import annotations

import os
import select
import stat

from vcuda_oci.container import hook_state
from vcuda_oci.container.bundle import Command
from vcuda_oci.container.hook_state import State
from vcuda_oci.guest import process
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import calling_runtime, report

from ..live import cgroup_folders
from . import syscalls

CREATE_CONTAINER = "createContainer"


class Container:
    """A container between the creation of its namespaces and pivot_root.

    pid: its first process; `process`: a descriptor of its /proc folder. runtime: the low-level
    runtime's command line for a query of state, up to the verb.
    """

    def __init__(self, state: State, pid: int, runtime: list[str]) -> None:
        self.state, self.pid, self.runtime = state, pid, runtime
        self.process = process.open_folder(pid)


def report_to_engine(line: str, allocation: str) -> None:
    """Write the line where the runtime that called this hook writes its own errors.

    That is its log and, if the runtime discards hooks' output (crun), its standard error: Podman
    shows that if the log has more than one error.
    """
    try:
        pid, _, command = calling_runtime.find(int(os.readlink("/proc/self")))
        report.log(command, line, allocation, process.working_folder(pid))
        if _is_null(2):
            _write_to_stderr_of(pid, line)
    except (OSError, ValueError):
        pass  # called by hand: no log


def _is_null(descriptor: int) -> bool:
    status = os.fstat(descriptor)
    return stat.S_ISCHR(status.st_mode) and status.st_rdev == os.makedev(1, 3)


def _write_to_stderr_of(pid: int, line: str) -> None:
    """Raises OSError: it has no standard error, or may not be examined."""
    descriptor = syscalls.descriptor_of(pid, 2)
    try:
        ready = select.poll()
        ready.register(descriptor, select.POLLOUT)
        if ready.poll(0):  # do not wait for a full pipe
            os.write(descriptor, (line + "\n").encode(errors="replace")[: select.PIPE_BUF])
    finally:
        os.close(descriptor)


def bundle_of(state: State) -> str:
    """The bundle of a container, where its state says "/".

    crun does so if the container has a user namespace: it has changed its working folder by then.
    The runtime's own command line has the bundle, if it is about this container.
    """
    command = _calling_command()
    if command and command.container_id == state.id and command.bundle.startswith("/"):
        return command.bundle
    return state.bundle


def is_kept() -> bool:
    """Whether the runtime that called this hook leaves the ended container to its caller."""
    command = _calling_command()
    return command is not None and command.is_kept


def _calling_command() -> Command | None:
    """The command line of the runtime that called this hook; None: called by hand."""
    try:
        return calling_runtime.find(int(os.readlink("/proc/self")))[2]
    except (OSError, ValueError):
        return None


def find(kind: str, state: State) -> Container:
    """Find the container that a hook of this kind is called for. Raises VcudaError.

    A createContainer hook runs in the container's namespaces and cgroup, and gets pid 0 or 1. It
    first moves to those of the runtime, because the container's limits and device rules would apply
    to it; /proc is still the host's. Source: runc 1.1, crun 1.8.
    """
    try:
        if kind == CREATE_CONTAINER:
            pid = calling_runtime.parent(int(os.readlink("/proc/self")))
            host, query, _ = calling_runtime.find(pid)
            for name in ("mnt", "cgroup"):
                flags = os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC
                syscalls.setns(os.open(f"/proc/{host}/ns/{name}", flags))
            cgroup_folders.join(process.open_folder(host))
        else:
            pid = state.pid
            _, query, _ = calling_runtime.find(int(os.readlink("/proc/self")))
        if pid <= 1:
            raise ProcessLookupError(3, f"no process {pid}")
        return Container(state, pid, query)
    except (OSError, ValueError) as error:
        raise VcudaError(
            f"its process has ended: {error}", hook_state.WHERE, hook_state.HINT
        ) from error
