"""The processes of a container that the driver is asked about, and containers without any."""

from __future__ import annotations

from collections.abc import Mapping

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import liveness
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError

from ..live import container_processes


class Unreachable(VcudaError):
    """The container's processes cannot be asked now."""


class Targets:
    """Finds the processes in a container's cgroups, and in those below, each time it is called.

    Another process cannot leave them, and one that a process of the container starts is in them.
    """

    def __init__(self, record: Allocation) -> None:
        """Raises VcudaError: its container is gone; Unreachable: it is paused, or has no cgroup of
        its own.
        """
        try:
            status, init = container_processes.state_of(record.runtime, record.container_id)
            folders = container_processes.cgroups(init)
        except (OSError, ValueError, KeyError, TypeError):
            raise VcudaError("its container is gone", record.id, "see 'vcuda ps'") from None
        if status == "paused":
            # The driver has threads in the processes that it locks; they must run.
            raise Unreachable("its container is paused", record.id, "unpause it first")
        if folders == container_processes.cgroups("self"):
            what = "its processes are in this program's cgroup and cannot be told from others"
            raise Unreachable(what, record.id, "start the container with a cgroup of its own")
        self.cgroups = folders

    def __call__(self) -> Mapping[int, int]:
        """The start time of each process (clock ticks since boot), by pid."""
        started = {pid: liveness.start_time(pid) for pid in container_processes.below(self.cgroups)}
        return {pid: time for pid, time in started.items() if time}


def refuse_unfit(record: Allocation, facts: Host) -> None:
    """Refuse what the driver would refuse later. Raises VcudaError."""
    if record.is_named_slice:
        what = "is a named slice or a claim: its containers are unknown"
        raise VcudaError(what, record.id, "ask for the share by the wrapper or the hook")
    for share in record.shares:
        if share.managed:
            what = f"its memory of {share.uuid} is managed, which the driver cannot take off"
            hint = "set memory-overcommit to 1 and start the container again"
            raise VcudaError(what, record.id, hint)
        gpu = facts.gpu(share.uuid)
        if gpu is None:
            raise VcudaError(f"{share.uuid} is not in this machine", record.id, "see 'vcuda gpus'")
        if gpu.mig is not None:
            what = f"{share.uuid} is a MIG device, which the driver cannot take off"
            raise VcudaError(what, record.id, "use shares of whole GPUs")
