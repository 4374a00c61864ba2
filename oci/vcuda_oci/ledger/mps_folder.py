"""MPS on this host: a folder for each GPU that has containers under MPS. <GPU>: see folder_of.

    <state>/mps/lock             held (flock) by the process that starts or ends daemons
    <state>/mps/<GPU>/wanted.json   which GPU, and the control program: written by claims
    <state>/mps/<GPU>/ready.json    the daemon and its server, once it serves: written by the keeper
    <state>/mps/<GPU>/seen.json     clients and fault of the server, as the keeper saw them last
    <state>/mps/<GPU>/pipe, log     CUDA_MPS_PIPE_DIRECTORY and CUDA_MPS_LOG_DIRECTORY

A claim writes its allocation first, then `wanted.json`, and waits for `ready.json`. The keeper
(start/mps_keeper.py) starts a daemon for each `wanted.json`. A daemon is not wanted any more when
no allocation under MPS is on its GPU; that is decided with the ledger's lock held, under which
`wanted.json` and `ready.json` are removed before the daemon is ended. So a claim that finds
`ready.json` has written its allocation in time, and a kill at any moment leaves at worst a folder,
a daemon or a server that the next sweep finds: daemons and servers by their environment.
"""

from __future__ import annotations

import os
import shutil
import signal
import stat
import time

from ..model import jsontree, names
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..model.policies import MPS
from ..model.record import Record
from ..system import files, kernel_tables
from ..system.own_lock import FolderLock
from . import liveness
from .ledger import Ledger, broken_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

_MOST_BYTES = 1 << 16
_LONGEST, _MOST_PATH_BYTES = "/pipe/control_privileged", 107
SHARED = "/dev/shm"  # noqa: S108 - where MPS has its files
_END_SECONDS = 3.0
_LOCK_SECONDS = 10.0


class Ready(Record):
    """A daemon that serves. daemon, server: pid and start time. shared: names below /dev/shm of the
    server's files, which each client needs.
    """

    __slots__ = ("daemon", "server", "shared")

    def __init__(self, daemon: list[int], server: list[int], shared: list[str]) -> None:
        self.daemon, self.server, self.shared = daemon, server, shared

    @property
    def lives(self) -> bool:
        return is_same(self.daemon) and is_same(self.server)


def is_same(process: list[int]) -> bool:
    """Whether the process of this pid and start time runs."""
    return liveness.start_time(process[0]) == process[1] != 0


def folder_of(state_dir: str, uuid: str) -> str:
    """The GPU's folder, named by the first 8 digits of its UUID: a socket's path is short."""
    return f"{state_dir}/{names.MPS_FOLDER}/{uuid[4:12]}"


def folders(state_dir: str) -> list[str]:
    root = f"{state_dir}/{names.MPS_FOLDER}"
    try:
        return sorted(f"{root}/{name}" for name in os.listdir(root) if name != "lock")
    except FileNotFoundError:
        return []


def want(state_dir: str, uuid: str, program: str, library: str) -> None:
    """Ask for a daemon of the GPU. program: on the host. library: libcuda's folder. Raises
    VcudaError: the state folder cannot be written, or has too long a path."""
    folder = folder_of(state_dir, uuid)
    if len(os.fsencode(folder + _LONGEST)) > _MOST_PATH_BYTES:
        what = f"is too long for MPS: a socket's path has at most {_MOST_PATH_BYTES} bytes"
        raise VcudaError(what, state_dir, "set a shorter state-dir")
    tree = {"gpu": uuid, "program": program, "library": library}
    try:
        os.makedirs(folder, 0o700, exist_ok=True)
        if wanted(folder) != tree:
            files.replace(folder + "/wanted.json", jsontree.dumps(tree).encode(), 0o600)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, folder, "free space there, or set state-dir") from error


def wanted(folder: str) -> dict[str, str] | None:
    tree = _read(folder + "/wanted.json")
    return tree if tree and set(tree) == {"gpu", "program", "library"} else None


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
    found, broken = ledger.read()
    if broken:
        raise broken_record(*broken[0])
    return [one for one in found if one.isolation == MPS and one.shares[0].uuid == uuid]


def processes(folder: str) -> list[int]:
    """Pids of daemons and servers with this folder's pipe directory, also of killed keepers."""
    variable = f"CUDA_MPS_PIPE_DIRECTORY={folder}/pipe".encode()
    return [pid for pid in all_processes() if variable in words_of(pid, "environ")]


def all_processes() -> list[int]:
    """Pids of MPS programs. Only of this pid namespace: a container's process could keep a read of
    its words waiting."""
    here, found = os.readlink("/proc/self/ns/pid"), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_one = kernel_tables.command(f"/proc/{name}").startswith("nvidia-cuda-mps")
            if is_one and os.readlink(f"/proc/{name}/ns/pid") == here:
                found.append(int(name))
        except OSError:
            continue  # it has ended
    return found


def words_of(pid: int, part: str) -> list[bytes]:
    """The words of a process. part: "cmdline" or "environ". []: it has ended."""
    try:
        return files.read(f"/proc/{pid}/{part}", 1 << 20).split(b"\0")
    except OSError:
        return []


def end_all(folder: str) -> None:
    """End the folder's daemon and servers, by force after _END_SECONDS."""
    started = {pid: liveness.start_time(pid) for pid in processes(folder)}
    until = time.monotonic() + _END_SECONDS
    number = signal.SIGTERM
    while started:
        for pid in started:
            if is_same([pid, started[pid]]):
                _kill(pid, number)
        if time.monotonic() > until:
            number = signal.SIGKILL
        time.sleep(0.02)
        started = {pid: since for pid, since in started.items() if is_same([pid, since])}
    _remove_shared(shared_files(folder))


def shared_of(server: int) -> list[str]:
    """The names below /dev/shm of the files of a server, which each client opens.

    Every user of the host may make files there: only regular files of root count.
    """
    found = []
    for name in sorted(os.listdir(SHARED)):
        if name.startswith("cuda.shm.") and f".{server:x}." in name:
            there = os.lstat(f"{SHARED}/{name}")
            if stat.S_ISREG(there.st_mode) and there.st_uid == os.geteuid():
                found.append(name)
    return found


def _remove_shared(found: list[str]) -> None:
    for name in found:
        files.remove(f"{SHARED}/{name}")


def shared_files(folder: str) -> list[str]:
    """The names below /dev/shm that `ready.json` has, also of a daemon that has ended."""
    tree = _read(folder + "/ready.json") or {}
    found: Any = tree.get("shared")
    return [name for name in found if "/" not in name] if isinstance(found, list) else []


def sweep(ledger: Ledger) -> None:
    """End the daemons without a container. Raises VcudaError: a record is broken."""
    for folder in folders(ledger.state_dir):
        with lock(ledger.state_dir):
            shared: list[str] = []
            with ledger:
                if is_wanted(ledger, folder):
                    continue
                shared = shared_files(folder)
                files.remove(folder + "/wanted.json")
                files.remove(folder + "/ready.json")
            end_all(folder)
            _remove_shared(shared)
            with ledger:
                if wanted(folder) is None:
                    shutil.rmtree(folder, ignore_errors=True)


def lock(state_dir: str) -> FolderLock:
    """Held by the only process that starts or ends daemons."""
    return FolderLock(f"{state_dir}/{names.MPS_FOLDER}/lock", _LOCK_SECONDS)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass


def _read(path: str) -> dict[str, Any] | None:
    try:
        files.only_ours(path)
        tree = jsontree.loads(files.read(path, _MOST_BYTES).decode())
    except (OSError, ValueError):
        return None
    return tree if isinstance(tree, dict) else None
