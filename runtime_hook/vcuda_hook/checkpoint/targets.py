"""The processes of a container that the driver is asked about, and containers without any."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from vcuda_oci.guest import page_file
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import MPS
from vcuda_oci.model.suspension import BY_IDLENESS, UNTIL_CALL

from ..live import container_cgroups, container_processes, usage


class Unreachable(VcudaError):
    """The container's processes cannot be asked now."""


class Targets:
    """Finds the processes in a container's cgroups, and in those below, each time it is called.

    Another process cannot leave them, and one that a process of the container starts is in them.
    A named slice or a claim has no container of its own: its processes are those that have its
    usage page mapped, as every program with the shim has.
    """

    def __init__(self, record: Allocation, containers: str) -> None:
        """containers: the ledger's folder of pages. Raises VcudaError: its container has ended;
        Unreachable: it is paused, or has no cgroup of its own.
        """
        self._id, self._page, self._path = record.id, None, f"{containers}/{record.id}/usage"
        self._cgroups: Mapping[str, str] = {}
        try:
            if record.is_named_slice:
                self._page = page_file.identity(self._path)
                return
            status, init = container_processes.state_of(record.runtime, record.container_id)
            ours = container_processes.cgroups("self")
            self._cgroups = container_cgroups.own(init, record.container_id, ours)
        except OSError:
            raise VcudaError("its container has ended", record.id, "see 'vcuda ps'") from None
        if status == "paused":
            # The driver has threads in the processes that it locks; they must run.
            raise Unreachable("its container is paused", record.id, "unpause it first")
        if not self._cgroups:
            what = "it has no cgroup of its own: its processes cannot be told from others"
            raise Unreachable(what, record.id, "start the container with a cgroup of its own")

    def __call__(self) -> Mapping[int, int]:
        """The start time of each process (clock ticks since boot), by pid."""
        started = {pid: liveness.start_time(pid) for pid in self._pids()}
        return {pid: time for pid, time in started.items() if time}

    def by_cgroups(self) -> list[tuple[Mapping[str, str], list[int]]]:
        """The pids by their cgroups, which are by hierarchy: their memory limits count."""
        if self._page is None:
            return [(self._cgroups, list(self._pids()))]
        found: dict[tuple[tuple[str, str], ...], list[int]] = {}
        for pid in self._pids():
            try:
                mine = container_processes.cgroups(pid)
            except OSError:
                continue  # it has ended
            found.setdefault(tuple(mine.items()), []).append(pid)
        return [(dict(cgroups), pids) for cgroups, pids in found.items()]

    def _pids(self) -> Sequence[int]:
        if self._page is None:
            return container_processes.below(self._cgroups)
        try:
            return container_processes.that_map(self._path, *self._page)
        except container_processes.TooManyMappings as error:
            what = f"process {error} has too many mappings to tell whether it uses the slice"
            raise Unreachable(what, self._id, "end that process") from None


# The first driver that takes memory between processes off the GPU.
_IPC_DRIVER = 610


def refuse_unfit(record: Allocation, facts: Host, by: str, ledger: Ledger) -> None:
    """Refuse what the driver would refuse later. by: the reason. Raises VcudaError."""
    _refuse_record(record, facts, by)
    page = usage.page_of(ledger, record)
    if page and page.managed:
        what = f"{_processes(page.managed)} managed memory, which the driver cannot take off"
        raise VcudaError(what, record.id, "free it (cuMemAllocManaged), or end the program")
    if page and page.opened_ipc and int(facts.version.partition(".")[0]) < _IPC_DRIVER:
        what = f"{_processes(page.opened_ipc)} memory of another one"
        what += f", which driver {facts.version} cannot take off"
        hint = f"end the program, start it without CUDA IPC, or install driver {_IPC_DRIVER}"
        raise VcudaError(what, record.id, hint)


def _processes(count: int) -> str:
    return "a process of it has" if count == 1 else f"{count} processes of it have"


def _refuse_record(record: Allocation, facts: Host, by: str) -> None:
    # Each user of a slice can write its page, and so make it look idle. So can each container of a
    # claim, but a claim has an idle time only if it names one.
    asks = record.id.startswith(names.CLAIM_PREFIX) and by == BY_IDLENESS
    if record.is_named_slice and by in UNTIL_CALL and not asks:
        what = "is a named slice or a claim, which several containers may share"
        raise VcudaError(what, record.id, "suspend it by 'vcuda suspend'")
    if record.isolation == MPS:
        what = "is under MPS, and the driver takes no program of an MPS server off"
        raise VcudaError(what, record.id, "use isolation turns")
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
