"""Claim an allocation under MPS, and wait for the GPU's control daemon."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time

from ..host.host import Host
from ..model import names, policies
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from . import claim, mps_folder
from .claim import Claim, Rules
from .ledger import Ledger

CONTROL = "/usr/bin/nvidia-cuda-mps-control"
_READY_SECONDS = 15.0
_PAUSE_SECONDS = 0.01
_WHAT = "isolation mps"


def claim_mps(ledger: Ledger, host: Host, wanted: Claim, rules: Rules) -> tuple[Allocation, bool]:
    """As `claim.claim`, on a GPU without containers that take turns. Raises VcudaError: refused."""
    _check(host, wanted)
    _claim_socket_pid(ledger.state_dir)
    # Under MPS nothing is suspended, and memory is promised once.
    rules = rules.replaced(overcommit=1, rotates=False, idle_suspend=0)
    return claim.claim(ledger, host, wanted.replaced(isolation=policies.MPS), rules)


def wait(ledger: Ledger, host: Host, allocation: Allocation) -> list[tuple[str, str, list[str]]]:
    """Wait until the GPU's daemon serves; return the mounts that its clients need.

    Raises VcudaError: it does not start.
    """
    uuid = allocation.shares[0].uuid
    mps_folder.want(ledger.state_dir, uuid, host.files[CONTROL], host.folder)
    folder = mps_folder.folder_of(ledger.state_dir, uuid)
    until = time.monotonic() + _READY_SECONDS
    found = mps_folder.ready(folder)
    while found is None:
        if time.monotonic() > until:
            what = f"{_WHAT}: no MPS server after {_READY_SECONDS:.0f} s"
            raise VcudaError(what, folder, f"see {folder}/log and 'vcuda doctor'")
        os.kill(_claim_socket_pid(ledger.state_dir), signal.SIGCHLD)  # ends its pause
        time.sleep(_PAUSE_SECONDS)
        found = mps_folder.ready(folder)
    read_only = ["bind", "rprivate", "nosuid", "nodev", "ro", "noexec"]
    read_write = ["bind", "rprivate", "nosuid", "nodev", "noexec"]
    mounts = [(f"{folder}/pipe/control", f"{names.GUEST_MPS}/control", read_only)]
    for name in found.shared:
        path = f"{mps_folder.SHARED}/{name}"
        mounts.append((path, path, read_write))
    return mounts


def _check(host: Host, wanted: Claim) -> None:
    """Raises VcudaError: the request asks for what MPS cannot give."""
    terms, where = wanted.request.terms, wanted.owner.key
    if wanted.owner.is_pod:
        raise VcudaError(f"{_WHAT} is not offered for pods", where, "leave isolation out")
    if terms.policy != policies.FIXED:
        what = f"{_WHAT}: a share cannot be {terms.policy}"
        raise VcudaError(what, where, "use policy fixed")
    if terms.latency != policies.NORMAL:
        what = f"{_WHAT}: latency means nothing, since no container waits for a turn"
        raise VcudaError(what, where, "leave latency out")
    if terms.idle_suspend:
        raise VcudaError(f"{_WHAT}: cannot be suspended", where, "leave idle-suspend out")
    if len(wanted.request.parts) != 1 or not 1 <= wanted.request.core <= 100:
        what = f"{_WHAT}: a container has a share of one GPU; it asks for more"
        raise VcudaError(what, where, "ask for at most core 100")
    if CONTROL not in host.files:
        what = f"{_WHAT}: the driver has no nvidia-cuda-mps-control"
        hint = "install the driver's compute utilities, or use isolation turns"
        raise VcudaError(what, host.root or "/", hint)


def _claim_socket_pid(state_dir: str) -> int:
    """Pid of the process with the claim socket, which keeps the daemons. Raises VcudaError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dialled:
        try:
            dialled.connect(f"{state_dir}/{names.CLAIM_SOCKET}")
            credentials = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError as error:
            raise VcudaError(
                f"{_WHAT} needs 'vcuda serve' or the node agent, and neither runs",
                f"{state_dir}/{names.CLAIM_SOCKET}",
                "start one, or use isolation turns",
            ) from error
    return int(struct.unpack("iII", credentials)[0])
