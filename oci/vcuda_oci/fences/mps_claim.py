"""Claim an allocation under MPS, and wait for the GPU's control daemon."""

from __future__ import annotations

import os
import signal
import socket
import struct
import time

from ..edits.edits import READ_ONLY, READ_WRITE
from ..host.host import Host
from ..ledger import claim, decision_file
from ..ledger.claim import Claim
from ..ledger.ledger import Ledger
from ..model import mps, names, policies
from ..model.allocation import Allocation
from ..model.errors import NotKnownYetError, VcudaError
from ..placement.rules import Rules
from . import mps_folder

CONTROL = "/usr/bin/nvidia-cuda-mps-control"
_READY_SECONDS = 15.0
_PAUSE_SECONDS = 0.01


def claim_mps(ledger: Ledger, host: Host, wanted: Claim, rules: Rules) -> tuple[Allocation, bool]:
    """As `claim.claim`, on a GPU without containers that take turns. Raises VcudaError: refused."""
    mps.check(wanted.request.terms, wanted.request.parts, wanted.owner.key)
    if CONTROL not in host.files:
        what = f"{mps.WHAT}: the driver has no nvidia-cuda-mps-control"
        hint = "install the driver's compute utilities, or use isolation turns"
        raise VcudaError(what, host.root or "/", hint)
    if rules.partitions and not mps.has_partitions(host.version):
        what = f"{mps.WHAT}: mps-partitions needs driver 590 or later"
        raise VcudaError(what, f"driver {host.version}", "leave mps-partitions empty")
    _claim_socket_pid(ledger.state_dir)
    # Under MPS nothing is suspended, and memory is promised once.
    rules = rules.once().replaced(rotates=False, idle_suspend=0)
    return claim.claim(ledger, host, wanted.replaced(isolation=policies.MPS), rules)


def wait(
    ledger: Ledger, host: Host, allocation: Allocation, root: str | None = None
) -> list[tuple[str, str, list[str]]]:
    """Wait until the GPU's daemon serves, as version 3 with the container's namespace; return the
    mounts that its clients need.

    root: the driver root as the process with the claim socket sees it; None: as here. Raises
    VcudaError: the daemon does not start; NotKnownYetError: it does not serve yet, and this process
    must not wait, because other claims need it.
    """
    uuid = allocation.shares[0].uuid
    folder = mps_folder.folder_of(ledger.state_dir, uuid)
    if not decision_file.may_hold and _socket(folder, allocation) is None:
        raise NotKnownYetError(f"{mps.WHAT}: no MPS server yet", uuid, "wait for it")
    there = host.root if root is None else root
    program = there + host.files[CONTROL][len(host.root) :]
    library = there + host.folder[len(host.root) :]
    mps_folder.want(ledger.state_dir, uuid, program, library, host.version)
    until = time.monotonic() + _READY_SECONDS
    while (found := _socket(folder, allocation)) is None:
        if time.monotonic() > until:
            what = f"{mps.WHAT}: no MPS server after {_READY_SECONDS:.0f} s"
            if failure := mps_folder.failure(folder):
                what += f": {failure}"
            raise VcudaError(what, folder, f"see {folder}/log and 'vcuda doctor'")
        os.kill(_claim_socket_pid(ledger.state_dir), signal.SIGCHLD)  # it wakes the MPS keeper
        time.sleep(_PAUSE_SECONDS)
    read_only = [*READ_ONLY, "noexec"]
    socket_path, shared = found
    mounts = [(socket_path, f"{names.GUEST_MPS}/control", read_only)]
    if allocation.partition:
        path = mps_folder.partition_file(folder, allocation.partition)
        mounts.append((path, f"{names.GUEST_MPS}/partition", read_only))
    for name in shared:
        path = f"{mps_folder.SHARED}/{name}"
        mounts.append((path, path, READ_WRITE))
    return mounts


def _socket(folder: str, allocation: Allocation) -> tuple[str, list[str]] | None:
    """The container's control socket, and the server's names below /dev/shm; None: not yet."""
    found = mps_folder.ready(folder)
    if found is None or found.layout != allocation.partitions:
        return None
    if found.spaces is None:
        return f"{folder}/pipe/control", found.shared
    space = mps.space_of(allocation)
    path = f"{folder}/pipe/{mps_folder.SERVER}/{space}/control"
    return (path, found.shared) if space in found.spaces else None


def _claim_socket_pid(state_dir: str) -> int:
    """Pid of the process with the claim socket, which keeps the daemons. Raises VcudaError."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET) as dialled:
        try:
            dialled.connect(f"{state_dir}/{names.CLAIM_SOCKET}")
            credentials = dialled.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, 12)
        except OSError as error:
            raise VcudaError(
                f"{mps.WHAT} needs 'vcuda serve' or the node agent, and neither runs",
                f"{state_dir}/{names.CLAIM_SOCKET}",
                "start one, or use isolation turns",
            ) from error
    return int(struct.unpack("iII", credentials)[0])
