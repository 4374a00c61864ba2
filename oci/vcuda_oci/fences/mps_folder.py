"""MPS on this host: a folder for each GPU that has containers under MPS. <GPU>: see folder_of.

    <state>/mps/lock             held (flock) by the process that starts or ends daemons
    <state>/mps/<GPU>/wanted.json   which GPU, and the control program: written by claims
    <state>/mps/<GPU>/ready.json    the daemon and its server, once it serves: written by the keeper
    <state>/mps/<GPU>/seen.json     clients and fault of the server, as the keeper saw them last
    <state>/mps/<GPU>/failed        why the keeper could not start the daemon last
    <state>/mps/<GPU>/partitions/N  the CUDA_MPS_SM_PARTITION of static partition N's clients
    <state>/mps/<GPU>/pipe, log     CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY

A claim writes its allocation first, then `wanted.json`, and waits for `ready.json`. The keeper
(mps_keeper.py) starts a daemon for each `wanted.json`. A daemon is ended when no allocation
under MPS is on its GPU: a sweep decides that, and removes `wanted.json` and `ready.json`, with the
ledger's lock held, before it ends the daemon. So a claim that finds `ready.json` has written its
allocation in time. A kill at any moment leaves at worst a folder, a daemon or a server, which the
next sweep finds: daemons and servers by their environment. Namespaces: mps_spaces.py.
"""

from __future__ import annotations

import os
import stat

from ..ledger.ledger import Ledger
from ..model import jsontree, names
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..model.policies import MPS
from ..model.record import Record
from ..system import files
from ..system.own_lock import FolderLock
from . import mps_processes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 1 << 16
SERVER = "vcuda"  # of version 3
_LONGEST, _MOST_PATH_BYTES = f"/pipe/{SERVER}/n0123456789/control", 107
SHARED = "/dev/shm"  # noqa: S108 - where MPS has its files
_LOCK_SECONDS = 10.0


class Ready(Record):
    """A daemon that serves. daemon, server: pid and start time. shared: names below /dev/shm of the
    server's files, which each client needs. spaces: namespaces with their limits (mps_spaces.py);
    None: the daemon runs as version 2, which has none. layout: percents of the static partitions.
    partitions: multiprocessors of each. binds: the daemon can tie a namespace to a partition.
    """

    def __init__(
        self,
        daemon: list[int],
        server: list[int],
        shared: list[str],
        spaces: list[str] | None = None,
        partitions: list[int] | None = None,
        binds: bool = False,
        layout: list[int] | None = None,
    ) -> None:
        self.layout, self.partitions, self.binds = layout or [], partitions or [], binds
        self.daemon, self.server, self.shared, self.spaces = daemon, server, shared, spaces

    @property
    def lives(self) -> bool:
        return mps_processes.is_same(self.daemon) and mps_processes.is_same(self.server)


def folder_of(state_dir: str, uuid: str) -> str:
    """The GPU's folder, named by the first 8 digits of its UUID: a socket's path is short."""
    return f"{state_dir}/{names.MPS_FOLDER}/{uuid[4:12]}"


def folders(state_dir: str) -> list[str]:
    root = f"{state_dir}/{names.MPS_FOLDER}"
    try:
        return sorted(f"{root}/{name}" for name in os.listdir(root) if name != "lock")
    except FileNotFoundError:
        return []


def want(state_dir: str, uuid: str, program: str, library: str, driver: str) -> None:
    """Ask for a daemon of the GPU. program: on the host. library: libcuda's folder. driver: its
    version. Raises VcudaError: the state folder cannot be written, or has too long a path."""
    folder = folder_of(state_dir, uuid)
    if len(os.fsencode(folder + _LONGEST)) > _MOST_PATH_BYTES:
        what = f"is too long for MPS: a socket's path has at most {_MOST_PATH_BYTES} bytes"
        raise VcudaError(what, state_dir, "set a shorter state-dir")
    tree = {"gpu": uuid, "program": program, "library": library, "driver": driver}
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if wanted(folder) != tree:
            files.replace(folder + "/wanted.json", jsontree.dumps(tree).encode(), 0o600)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, folder, "free space there, or set state-dir") from error


def wanted(folder: str) -> dict[str, str] | None:
    """As `want` has it."""
    tree = _read(folder + "/wanted.json")
    return tree if tree and set(tree) == {"gpu", "program", "library", "driver"} else None


def is_wanted(ledger: Ledger, folder: str) -> bool:
    """Whether a container needs the folder's daemon. Raises VcudaError: a record is broken."""
    tree = wanted(folder)
    return tree is not None and bool(containers(ledger, tree["gpu"]))


def ready(folder: str) -> Ready | None:
    """The daemon that serves; None: none does, or it has ended."""
    tree = _read(folder + "/ready.json")
    try:
        found = Ready(**tree) if tree else None
        return found if found and found.lives else None
    except (TypeError, IndexError):
        return None


def servers(state_dir: str) -> set[int]:
    """Pids of the servers that serve."""
    found = [ready(folder) for folder in folders(state_dir)]
    return {one.server[0] for one in found if one}


def write_ready(folder: str, found: Ready) -> None:
    """Raises OSError."""
    files.replace(folder + "/ready.json", jsontree.dumps(found.fields()).encode(), 0o600)


def partition_file(folder: str, number: int) -> str:
    return f"{folder}/partitions/{number}"


def write_partitions(folder: str, values: list[str]) -> None:
    """values: of CUDA_MPS_SM_PARTITION, for the clients of each. Raises OSError."""
    os.makedirs(f"{folder}/partitions", 0o700, exist_ok=True)
    for number, value in enumerate(values, 1):
        files.replace(partition_file(folder, number), value.encode(), 0o644)


def failure(folder: str) -> str:
    """Why the keeper could not start the daemon last; "" if it could."""
    return files.text(folder + "/failed")


def note_failure(folder: str, what: str) -> None:
    """what: "": the daemon has started. Raises OSError."""
    if what:
        files.replace(folder + "/failed", what.encode(), 0o600)
    else:
        files.remove(folder + "/failed")


def seen(folder: str) -> dict[str, int] | None:
    """ "clients": processes that are the server's clients. "fault": 1 after a fault that ends the
    work of all of them, until they have ended. None: the keeper has not seen the server yet."""
    tree = _read(folder + "/seen.json")
    return tree if tree and set(tree) == {"clients", "fault"} else None


def write_seen(folder: str, clients: int, fault: bool) -> None:
    """Raises OSError."""
    tree = {"clients": clients, "fault": int(fault)}
    if seen(folder) != tree:
        files.replace(folder + "/seen.json", jsontree.dumps(tree).encode(), 0o600)


def containers(ledger: Ledger, uuid: str) -> list[Allocation]:
    """The allocations under MPS on the GPU. Raises VcudaError: a record is broken."""
    return [one for one in ledger.read_all() if one.isolation == MPS and one.shares[0].uuid == uuid]


def end_all(folder: str) -> None:
    """End the folder's daemon and servers, and remove their files, also of those that never served:
    one that has to be killed leaves them."""
    shared = shared_files(folder)
    for pid in mps_processes.processes(folder):
        shared += shared_of(pid)
    mps_processes.end(folder)
    remove_shared(shared)


def shared_of(server: int) -> list[str]:
    """The names below /dev/shm of the files of a server, which each client opens.

    Every user of the host may make files there: only regular files of root count.
    """
    found = []
    for name in sorted(os.listdir(SHARED)):
        if name.startswith("cuda.shm.") and f".{server:x}." in name:
            try:
                there = os.lstat(f"{SHARED}/{name}")
            except FileNotFoundError:
                continue  # its owner has just removed it
            if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():
                found.append(name)
    return found


def remove_shared(found: list[str]) -> None:
    for name in found:
        files.remove(f"{SHARED}/{name}")


def shared_files(folder: str) -> list[str]:
    """The names below /dev/shm that `ready.json` has, also of a daemon that has ended."""
    tree = _read(folder + "/ready.json") or {}
    found: Any = tree.get("shared")
    return [name for name in found if "/" not in name] if isinstance(found, list) else []


def lock(state_dir: str) -> FolderLock:
    """Held by the only process that starts or ends daemons."""
    return FolderLock(f"{state_dir}/{names.MPS_FOLDER}/lock", _LOCK_SECONDS)


def _read(path: str) -> dict[str, Any] | None:
    try:
        tree = jsontree.loads(files.read_ours(path, _MOST_BYTES))
    except (OSError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None
