"""What PyTorch, CuPy, JAX and Numba see of a slice and get of it."""

from __future__ import annotations

import os

from bench.result import Figure
from gpu.machine import SOURCES, Machine, UnmeasuredError, answer
from support.gpu.guest import GIB, MIB

TAKE = os.path.join(SOURCES, "take.py")
NAMES = ("torch", "cupy", "jax", "numba")
SLICE = 4 * GIB


def memory(machine: Machine, python: str) -> list[Figure]:
    """PYTHON is the interpreter that has them. Raises UnmeasuredError: it has none of them."""
    figures = []
    by_itself: list[str] = []
    in_slice: list[str] = []
    for name in NAMES:
        container = machine.container(memory_bytes=SLICE)
        try:
            found = answer(machine.start_in(container, python, TAKE, name))
        except UnmeasuredError as error:
            fails = by_itself if _fails_alone(machine, python, name) else in_slice
            fails.append(f"{name}: {error}")
            continue
        if "missing" in found:
            continue
        above = max(found["got"] - SLICE, 0)
        note = f"sees {found['total'] / MIB:.0f} MiB, gets {found['got'] / MIB:.0f} MiB; then "
        figures.append(
            Figure(f"frameworks {name}", above, "bytes beyond", 0, {}, note + found["refused"])
        )
    for which, goal, fails in (("in the slice alone", 0, in_slice), ("anywhere", None, by_itself)):
        if fails:
            note = "; ".join(fails)
            figures.append(Figure(f"frameworks fail {which}", len(fails), "of 4", goal, {}, note))
    if not figures:
        raise UnmeasuredError(f"none of {', '.join(NAMES)} for {python}")
    return figures


def _fails_alone(machine: Machine, python: str, name: str) -> bool:
    """Whether it fails on the driver alone, where it takes one piece of memory."""
    try:
        answer(machine.start(python, TAKE, name, "1"))
    except UnmeasuredError:
        return True
    return False
