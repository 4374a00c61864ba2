"""Find and end processes of MPS on this host."""

from __future__ import annotations

import os
import signal
import time

from ..system import files, kernel_tables
from . import liveness

_END_SECONDS = 3.0


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


def words_of(pid: int, part: str) -> list[bytes]:
    """The strings in a file of a process. part: "cmdline" or "environ". []: it has ended."""
    try:
        return files.read(f"/proc/{pid}/{part}", 1 << 20).split(b"\0")
    except OSError:
        return []


def end(folder: str) -> None:
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


def _kill(pid: int, number: int) -> None:
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        pass
