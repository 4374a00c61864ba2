"""Static partitions of a GPU's multiprocessors, made in an MPS daemon that has no client yet.

Version 3 of the control interface takes a name for each. Version 2, in a daemon that was started
with `-S`, gives each an id only. tree: the content of `wanted.json`.

Source: NVIDIA's guide to MPS, release 615, "Using Static SM Partitioning" and "Legacy MPS v2
Interface"; for what version 2 prints, the notes and tests of public programs.
"""

from __future__ import annotations

import re
import time
from collections.abc import Sequence

from ..model import mps
from ..model.errors import VcudaError
from . import mps_control, mps_folder
from .mps_control import require_v3
from .mps_folder import SERVER, Ready

_TRIAL = "trial"
_LIST_SECONDS, _PAUSE_SECONDS = 2.0, 0.01


def make(folder: str, tree: dict[str, str], now: Ready, layout: Sequence[int]) -> Ready:
    """Make the partitions and a file of each for its container; return `now` with them. layout:
    their percents. Raises VcudaError."""
    has_names = now.spaces is not None
    total = (_chunks_v3 if has_names else _chunks_v2)(folder, tree)
    values, widths = [], []
    for number, (percent, count) in enumerate(zip(layout, mps.chunks_of(layout, total)), 1):
        if not count:
            what = f"mps-partitions: {percent} % are less than one of the GPU's chunks"
            raise VcudaError(what, tree["gpu"], "write larger percents")
        value, width = (_add_v3 if has_names else _add_v2)(folder, tree, number, count)
        values.append(value)
        widths.append(width)
    mps_folder.write_partitions(folder, values)
    can_bind = has_names and mps.has_partitions_in_namespaces(tree["driver"])
    binds = can_bind and _binds(folder, tree)
    return now.replaced(layout=list(layout), partitions=widths, binds=binds)


def _chunks_v2(folder: str, tree: dict[str, str]) -> int:
    """How many chunks the GPU has. Raises VcudaError: the daemon does not list them."""
    until = time.monotonic() + _LIST_SECONDS  # a server may be listed before it has the GPU
    while time.monotonic() < until:
        for cells in _rows_v2(folder, tree):
            if len(cells) == 4 and all(map(_is_number, cells)):  # free, used; multiprocessors
                return int(cells[0]) + int(cells[1])
        time.sleep(_PAUSE_SECONDS)
    raise _no_chunks(folder)


def _add_v2(folder: str, tree: dict[str, str], _: int, count: int) -> tuple[str, int]:
    """Make a partition of `count` chunks; return its clients' CUDA_MPS_SM_PARTITION, and how many
    multiprocessors it has. Raises VcudaError."""
    command = f"sm_partition add {tree['gpu']} {count}"
    answer = mps_control.ask_v2(folder, tree, command)  # its exit status is 0 if refused too
    value = re.search(r"GPU-[0-9A-Fa-f-]+/\S+", answer, re.ASCII)
    if not value:
        raise mps_control.refused(folder, command, answer)
    id = value[0].partition("/")[2]  # which has slashes too
    for cells in _rows_v2(folder, tree):
        if len(cells) > 2 and cells[0] == id and _is_number(cells[2]):
            return value[0], int(cells[2])
    raise _unclear(folder, answer)


def _rows_v2(folder: str, tree: dict[str, str]) -> list[list[str]]:
    """The rows that begin with the GPU's UUID, or with its first digits: their other cells, without
    empty ones."""
    rows = [line.split() for line in mps_control.ask_v2(folder, tree, "lspart").splitlines()]
    return [
        [cell for cell in row[1:] if cell != "-"]
        for row in rows
        if row and len(row[0]) > len("GPU-") and tree["gpu"].startswith(row[0])
    ]


def _chunks_v3(folder: str, tree: dict[str, str]) -> int:
    """As _chunks_v2."""
    listed = require_v3(folder, tree, "device", "list", f"--server={SERVER}", "--format=csv")
    head, *rows = [line.split(",") for line in listed.splitlines()] or [[]]
    columns = [re.sub(r"[\W_]+", " ", cell).strip().lower() for cell in head]
    if "total chunks" in columns:
        at = columns.index("total chunks")
        for row in rows:
            if len(row) > at and tree["gpu"] in map(str.strip, row) and _is_number(row[at].strip()):
                return int(row[at])
    raise _no_chunks(folder)


def _add_v3(folder: str, tree: dict[str, str], number: int, count: int) -> tuple[str, int]:
    """As _add_v2. number: of the partition."""
    words = [f"--server={SERVER}", f"--device={tree['gpu']}", f"--chunks={count}"]
    name = mps_control.partition(number)
    answer = require_v3(folder, tree, "sm-partition", "create", name, *words)
    value = re.search(r"^CUDA_MPS_SM_PARTITION=(\S+)$", answer, re.MULTILINE)
    width = re.search(r"\(sm-count=(\d{1,9})\)", answer, re.ASCII)
    if not value or not width:
        raise _unclear(folder, answer)
    return value[1], int(width[1])


def _binds(folder: str, tree: dict[str, str]) -> bool:
    """Whether the daemon ties namespaces to partitions: tried with a namespace of no container."""
    require_v3(folder, tree, "namespace", "create", _TRIAL, f"--server={SERVER}")
    try:
        mps_control.bind(folder, tree, _TRIAL, 1)
    except VcudaError:
        return False
    finally:
        mps_control.remove_space(folder, tree, _TRIAL)
    return True


def _is_number(text: str) -> bool:
    return bool(re.fullmatch(r"\d{1,9}", text, re.ASCII))


def _no_chunks(folder: str) -> VcudaError:
    return VcudaError("MPS does not list the GPU's chunks", folder, "empty mps-partitions")


def _unclear(folder: str, answer: str) -> VcudaError:
    what = f"MPS does not say what partition it has made: {mps_control.in_line(answer)}"
    return VcudaError(what, folder, f"see {folder}/log")
