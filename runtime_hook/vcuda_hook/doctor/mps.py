"""Check MPS: the control program, compute modes, daemons without a container, users that wait."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.fences import mps_claim, mps_folder, mps_processes
from vcuda_oci.host import driver_scan, nvml
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import mps, policies
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import kernel_tables
from vcuda_oci.system.settings_file import Config

from . import finding
from .finding import ERROR, INFO, OK, WARNING, Finding
from .nvml_answers import mode_of

MPS = "mps"
CHECKS = (MPS,)
_EXCLUSIVE_PROCESS, _PROHIBITED = 3, 2  # nvmlComputeMode_t
_SERVICE = ".service"


@dataclass
class Daemon:
    """A control daemon. folder: of the state folder; "": it is another program's. is_wanted: a
    container is under it. for_all: it serves clients of all users at once. service: the systemd
    service that has its cgroup; "". version: of the control interface, 2 or 3. pipes: the pipe
    directory of another program's daemon."""

    pid: int
    folder: str
    is_wanted: bool
    for_all: bool
    service: str = ""
    version: int = 2
    pipes: str = ""


def examine(settings: Config) -> list[Finding]:
    try:
        root = settings.driver_root.rstrip("/")
        found = driver_scan.find(root)
        library = found.libraries.get("libnvidia-ml.so.1", "")
        modes = _modes(library)
        ledger = Ledger(settings.state_dir)
        daemons = _daemons(ledger)
    except VcudaError as error:
        return [finding.of_error(MPS, error)]
    has_program = mps_claim.CONTROL in found.files
    has_v3 = mps.has_namespaces(found.version)
    lacks_partitions = bool(settings.mps_partitions) and not mps.has_partitions(found.version)
    exclusive, prohibited = (
        [gpu for gpu, mode in modes.items() if mode == wanted]
        for wanted in (_EXCLUSIVE_PROCESS, _PROHIBITED)
    )
    return judge(
        settings.isolation,
        has_program,
        exclusive,
        daemons,
        prohibited,
        has_v3,
        lacks_partitions,
    )


def judge(
    isolation: str,
    has_program: bool,
    exclusive: Sequence[str],
    daemons: Sequence[Daemon],
    prohibited: Sequence[str] = (),
    has_v3: bool = False,
    lacks_partitions: bool = False,
) -> list[Finding]:
    """isolation: the setting. exclusive: GPUs that admit one process, or MPS, as text. prohibited:
    those that admit none. has_v3: the driver has version 3 of the control interface.
    lacks_partitions: the setting mps-partitions is not empty, and the driver is older."""
    found = []
    if prohibited:
        what = "in compute mode prohibited: every program on it fails, under MPS too"
        hint = "leave the mode by 'nvidia-smi -c 0', or drain the GPU by 'vcuda drain'"
        found.append(Finding(MPS, ERROR, what, ", ".join(prohibited), hint))
    if isolation == policies.MPS and not has_program:
        what = (
            "isolation is mps and the driver has no nvidia-cuda-mps-control: every share is refused"
        )
        hint = "install the driver's compute utilities, or set isolation to auto"
        found.append(Finding(MPS, ERROR, what, mps_claim.CONTROL, hint))
    if lacks_partitions and has_program:
        what = "mps-partitions needs driver 590 or later: every share under MPS is refused"
        found.append(Finding(MPS, ERROR, what, hint="leave mps-partitions empty"))
    if exclusive and isolation != policies.MPS:
        what = "admits one process at a time: several containers share it with isolation mps alone"
        hint = "use isolation mps there, or leave the mode by 'nvidia-smi -c 0'"
        found.append(Finding(MPS, WARNING, what, ", ".join(exclusive), hint))
    for daemon in daemons:
        place = daemon.folder or daemon.pipes
        where = f"pid {daemon.pid}" + (f", {place}" if place else "")
        if not daemon.folder:
            what = "an MPS daemon of another program: its clients take time slices beside turns"
            hint = "end it by 'quit', or keep it to GPUs that vcuda does not share"
            found.append(Finding(MPS, INFO, what, where, hint))
        elif not daemon.is_wanted:
            what = "an MPS daemon is left over: no container is under it"
            hint = "run 'vcuda release --all-dead'"
            found.append(Finding(MPS, WARNING, what, where, hint))
        elif not daemon.for_all:
            what = "serves one user at a time: containers of others wait until its clients end"
            hint = "run those containers as one user, or install a newer driver"
            found.append(Finding(MPS, WARNING, what, where, hint))
        if daemon.is_wanted and has_v3 and daemon.version == 2:
            what = "runs version 2: limits of MPS are variables of its containers' processes"
            hint = "it runs version 3 once its last container has ended; else see its folder's log"
            found.append(Finding(MPS, INFO, what, where, hint))
        if daemon.is_wanted and daemon.service:
            what = f"ends with {daemon.service}: its stop or restart ends its containers' GPU work"
            hint = f"restart {daemon.service} while no container is under MPS"
            found.append(Finding(MPS, INFO, what, where, hint))
    wanted = len([one for one in daemons if one.is_wanted])
    program = "" if has_program else "; the driver has no control program"
    return found or [Finding(MPS, OK, f"{wanted} daemons{program}")]


def _modes(library: str) -> dict[str, int | None]:
    """The compute mode (nvmlComputeMode_t) of each GPU, by its text. Raises VcudaError."""
    gpus = [gpu for gpu in nvml.inventory(library).gpus if gpu.mig is None]
    driver = ctypes.CDLL(library)
    driver.nvmlInit_v2()
    return {
        f"GPU {gpu.index} ({gpu.uuid})": mode_of(driver, gpu.uuid, "nvmlDeviceGetComputeMode")
        for gpu in gpus
    }


def _daemons(ledger: Ledger) -> list[Daemon]:
    """The control daemons of this host. Raises VcudaError: a record is broken."""
    ours = {
        pid: folder
        for folder in mps_folder.folders(ledger.state_dir)
        for pid in mps_processes.processes(folder)
    }
    found = []
    for pid, pipes in sorted(mps_processes.control_daemons().items()):
        folder = ours.get(pid, "")
        if not folder:
            found.append(Daemon(pid, "", is_wanted=False, for_all=False, pipes=pipes))
            continue
        words = mps_processes.words_of(pid, "cmdline")  # as mps_control.py starts it
        wanted = mps_folder.is_wanted(ledger, folder)
        for_all = bool({b"-multiuser-server", b"-m"} & set(words))
        version = 3 if b"3" in words[1:] else 2
        found.append(Daemon(pid, folder, wanted, for_all, _service_of(pid), version))
    return found


def _service_of(pid: int) -> str:
    try:
        found = kernel_tables.cgroups(f"/proc/{pid}")
    except OSError:
        return ""  # it has ended
    parts = [part for _, _, path in found for part in path.split("/")]
    return next((part for part in reversed(parts) if part.endswith(_SERVICE)), "")
