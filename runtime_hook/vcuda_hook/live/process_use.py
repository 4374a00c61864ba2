"""The processes of a container with their pids on the host, and what each uses of its share.

The figures are from the container's usage page, where a process names itself by its pid inside the
container: the host's table says which pid that is here.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.system import kernel_tables

from . import container_processes, usage


class ContainerProcess(NamedTuple):
    """pid_inside: in the process's own pid namespace. command: chosen by the container.

    held_bytes, busy_ns: GPU memory and time on each GPU of the container, in the order of its
    shares; (): the process has no entry in the usage page.
    """

    pid: int
    pid_inside: int
    command: str
    held_bytes: Sequence[int] = ()
    busy_ns: Sequence[int] = ()

    def as_json(self) -> dict[str, Any]:
        """Figures of all GPUs together; None: unknown."""
        return {
            "pid": self.pid,
            "pid_inside": self.pid_inside,
            "command": self.command,
            "memory_used_bytes": sum(self.held_bytes) if self.held_bytes else None,
            "busy_seconds": sum(self.busy_ns) / 1e9 if self.busy_ns else None,
        }


def of(ledger: Ledger, allocation: Allocation) -> list[ContainerProcess]:
    """The processes, by pid; none if the container does not run or this user may not know."""
    if allocation.is_named_slice:
        return []
    try:
        init = container_processes.init_of(allocation.runtime, allocation.container_id)
        pids = container_processes.of(init) if init else []
    except OSError:
        return []
    page = usage.page_of(ledger, allocation)
    by_pid = {each.pid: each for each in page.processes} if page else {}
    found = []
    for process in filter(None, map(_process, pids)):
        its = by_pid.get(process.pid_inside)
        if its:
            process = process._replace(held_bytes=its.held_bytes, busy_ns=its.busy_ns)
        found.append(process)
    return found


def _process(pid: int) -> ContainerProcess | None:
    """None: it has ended. Source: proc(5), NSpid of status."""
    try:
        inside = kernel_tables.status(f"/proc/{pid}").get("NSpid", str(pid)).split()[-1]
        return ContainerProcess(pid, int(inside), kernel_tables.command(f"/proc/{pid}"))
    except (OSError, ValueError, IndexError):
        return None
