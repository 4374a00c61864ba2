"""Find and end processes of MPS on this host."""

from __future__ import annotations

import os
import signal
import time

from ..ledger import liveness
from ..model.errors import VcudaError
from ..system import files, kernel_tables

_END_SECONDS = 3.0
# A process that the driver holds within the kernel outlives SIGKILL.
_KILL_SECONDS, _AGAIN_SECONDS = 2.0, 0.5
_PROGRAM = "nvidia-cuda-mps-control"


def is_same(process: list[int]) -> bool:
    """Whether the process of this pid and start time runs."""
    return liveness.start_time(process[0]) == process[1] != 0


def processes(folder: str) -> list[int]:
    """Pids of daemons and servers with this folder's pipe directory, of any keeper."""
    variable = f"CUDA_MPS_PIPE_DIRECTORY={folder}/pipe".encode()
    return [pid for pid in all_processes() if variable in words_of(pid, "environ")]


def all_processes() -> list[int]:
    """Pids of MPS programs in this pid namespace: a container's process could block a read of its
    environment."""
    here, found = os.readlink("/proc/self/ns/pid"), []
    for name in filter(str.isdigit, os.listdir("/proc")):
        try:
            is_one = kernel_tables.command(f"/proc/{name}").startswith("nvidia-cuda-mps")
            if is_one and os.readlink(f"/proc/{name}/ns/pid") == here:
                found.append(int(name))
        except OSError:
            continue  # it has ended
    return found


def control_daemons() -> dict[int, str]:
    """The pipe directory of each control daemon, as it sees it, by pid: of processes of the control
    program that listen on a socket `control`, in any pid namespace. No option is needed to tell one
    from a program that asks it, and no file is read that a container's process could block."""
    found: dict[int, str] = {}
    for name in filter(str.isdigit, os.listdir("/proc")):
        process = f"/proc/{name}"
        try:
            program = os.path.basename(os.readlink(process + "/exe")).replace(" (deleted)", "")
            for path in kernel_tables.listens(process) if program == _PROGRAM else ():
                if path.endswith("/control"):
                    found.setdefault(int(name), os.path.dirname(path))
        except OSError:
            continue  # it has ended
    return found


def words_of(pid: int, part: str) -> list[bytes]:
    """The strings in a file of a process. part: "cmdline" or "environ". []: it has ended."""
    try:
        return files.read(f"/proc/{pid}/{part}", 1 << 20).split(b"\0")
    except OSError:
        return []


def end(folder: str) -> None:
    """End the folder's daemon and servers, by force after _END_SECONDS.

    Raises VcudaError: one does not end. The next calls do so sooner: they hold the lock of MPS.
    """
    started = {pid: liveness.start_time(pid) for pid in processes(folder)}
    began = time.monotonic()
    was_killed = bool(started) and all(map(_is_killed, started))
    most = _AGAIN_SECONDS if was_killed else _END_SECONDS + _KILL_SECONDS
    while started:
        passed = time.monotonic() - began
        if passed > most:
            listed = ", ".join(map(str, sorted(started)))
            what = "an MPS process has been killed and does not end"
            raise VcudaError(what, f"pid {listed}", "see dmesg; reset the GPU, or reboot")
        for pid in started:
            if is_same([pid, started[pid]]):
                _kill(pid, signal.SIGKILL if passed > _END_SECONDS else signal.SIGTERM)
        time.sleep(0.02)
        started = {pid: since for pid, since in started.items() if is_same([pid, since])}


def _is_killed(pid: int) -> bool:
    """Whether SIGKILL is pending. Source: proc(5), SigPnd and ShdPnd of /proc/<pid>/status."""
    try:
        found = kernel_tables.status(f"/proc/{pid}")
        pending = int(found["SigPnd"], 16) | int(found["ShdPnd"], 16)
    except (OSError, KeyError, ValueError):
        return False
    return bool(pending >> (signal.SIGKILL - 1) & 1)


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
