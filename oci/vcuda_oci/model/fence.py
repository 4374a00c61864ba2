"""What holds a container's share, in one line: memory, compute, and what a fault ends."""

from __future__ import annotations

from . import policies
from .gpu import Gpu

WHOLE = "whole"

_LINES = {
    policies.MIG: "memory and compute by hardware; a fault ends this container's work only, "
    "unless it takes the GPU down",
    policies.MPS: "memory by the shim and the driver's limit of each process, compute by a ceiling "
    "of multiprocessors of each process; a fault of a process ends the work of every container "
    "under MPS on the GPU",
    WHOLE: "no other container has this GPU; a fault ends this container's work only",
    policies.TURNS: "memory by the shim, compute by turns; a fault of a process ends that process, "
    "a fault of the GPU the work of every container on it",
}


_BY_SHIM = "memory by the shim"
_OF_PROCESS = "the driver's limit of each process, compute by a ceiling"
_OF_SERVER = "the MPS server's limit of each process, compute by the server's ceiling"


def with_driver(line: str) -> str:
    """The line of a container with a cgroup that the driver limits too."""
    return line.replace(_BY_SHIM, f"{_BY_SHIM} and the driver's limit of its cgroup", 1)


def with_namespace(line: str) -> str:
    """The line of a container under MPS with a namespace: no variable of its processes counts."""
    return line.replace(_OF_PROCESS, _OF_SERVER, 1)


def with_partition(line: str, multiprocessors: int | None = None, binds: bool | None = None) -> str:
    """The line of a container under MPS with a static partition. multiprocessors: of it; None: not
    known yet. binds: the server keeps the container's processes in it, else the shim does."""
    memory, _, _ = line.partition(", compute by ")
    count = "" if multiprocessors is None else f"{multiprocessors} "
    keeper = "" if binds is None else f", which the {'MPS server' if binds else 'shim'} keeps it to"
    return (
        f"{memory}, compute by {count}multiprocessors of its own{keeper}; a fault of a "
        "multiprocessor ends this container's work only, another one that of every container under "
        "MPS on the GPU"
    )


def of(isolation: str, core_percent: int, gpu: Gpu | None) -> tuple[str, str]:
    """A word, "mig", "mps", "whole" or "turns", and the line.

    isolation: as a record has it. gpu: that the share is of; None: not here any more.
    """
    is_part = gpu is not None and gpu.mig is not None
    word = isolation or (WHOLE if core_percent == 100 and not is_part else policies.TURNS)
    if is_part and core_percent == 100:
        word = policies.MIG
    line = _LINES[word]
    if is_part and word == policies.TURNS:
        line += "; all of it within a MIG device"
    return word, line
