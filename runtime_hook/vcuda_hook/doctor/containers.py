"""Check the containers with shares: do they run, with the shim, and with which?"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass, field

from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.start import apply_share
from vcuda_oci.system import kernel_tables
from vcuda_oci.system.settings_file import Config

from ..live import container_processes
from ..live.container_processes import Process
from ..names import container_names
from . import finding
from .finding import ERROR, INFO, OK, UNKNOWN, WARNING, Finding

DEAD, UNSHIMMED, OLDER = "dead-containers", "shim-not-loaded", "older-shim"
CHECKS = (DEAD, UNSHIMMED, OLDER)
# How mountinfo's "root" marks a removed file. Source: Linux, fs/d_path.c.
_REMOVED = "//deleted"


@dataclass
class Container:
    """name: as lists show it, else the id. is_alive: as a claim judges it. processes: those with a
    libcuda but without the shim.

    hidden: some of its processes could not be examined. shims: names of the shim's files that are
    mounted in it, which carry their contents' hashes.
    """

    name: str
    is_alive: bool
    processes: list[Process] = field(default_factory=list)
    hidden: bool = False
    shims: frozenset[str] = frozenset()


def examine(settings: Config) -> list[Finding]:
    if os.geteuid() != 0:
        return finding.need_root(CHECKS)
    allocations, _ = Ledger(settings.state_dir).read()
    names = container_names.lines(allocations)
    containers = [read_host(allocation, names[allocation.id]) for allocation in allocations]
    today = os.path.basename(os.path.realpath(apply_share.SHIM))
    return [dead(containers), *shim_not_loaded(containers), older_shim(containers, today)]


def read_host(allocation: Allocation, name: str) -> Container:
    runs = liveness.container_lives(allocation)
    container = Container(name, runs or liveness.is_alive(allocation))
    # A pod's container keeps its share between two starts; a named slice has no container.
    if not runs or allocation.is_named_slice:
        return container
    try:
        init = container_processes.init_of(allocation.runtime, allocation.container_id)
        pids = container_processes.of(init) if init else []
        container.shims = _shims(kernel_tables.mounts(f"/proc/{init}")) if init else frozenset()
    except OSError:
        # The runtime does not know a container that is being created.
        pid, started = allocation.claimant
        container.hidden = liveness.start_time(pid) != started
        return container
    for pid in pids:
        try:
            process = container_processes.examine(pid)
        except (FileNotFoundError, ProcessLookupError):
            continue  # it has ended
        except OSError:
            container.hidden = True
        else:
            container.processes += [process] if process.foreign else []
    return container


def dead(containers: Sequence[Container]) -> Finding:
    gone = [container.name for container in containers if not container.is_alive]
    if not gone:
        return Finding(DEAD, OK, "none holds a share")
    what = "dead, and its share not released" if len(gone) == 1 else "dead, and shares not released"
    hint = "run 'vcuda release --all-dead'; the next claim that needs the room does it too"
    return Finding(DEAD, WARNING, what, ", ".join(gone), hint)


def shim_not_loaded(containers: Sequence[Container]) -> list[Finding]:
    found = []
    for container in containers:
        for process in container.processes:
            what = (
                f"process {process.pid} ({process.name}) has {process.foreign} and not the shim: "
                "nothing limits it"
            )
            hint = "let it load libcuda.so.1 from the loader's own folders"
            found.append(Finding(UNSHIMMED, ERROR, what, container.name, hint))
        if container.hidden:
            what = "its processes cannot be examined"
            hint = "run it as root on the host, where its runtime answers"
            found.append(Finding(UNSHIMMED, UNKNOWN, what, container.name, hint))
    return found or [Finding(UNSHIMMED, OK, "no program in a container goes round the shim")]


def older_shim(containers: Sequence[Container], today: str) -> Finding:
    """today: the name of the file that the next container gets."""
    older = [each.name for each in containers if each.shims and today not in each.shims]
    if not older:
        return Finding(OLDER, OK, "no container has the shim of another version")
    what = "has the shim of its start, of another version"
    if len(older) > 1:
        what = "have the shims of their start, of another version"
    hint = "its limits hold; start it again for this version's shim"
    return Finding(OLDER, INFO, what, ", ".join(older), hint)


def _shims(mounts: Sequence[kernel_tables.Mount]) -> frozenset[str]:
    files = {os.path.basename(mount.root.removesuffix(_REMOVED)) for mount in mounts}
    return frozenset(file for file in files if file.startswith("libvcuda"))
