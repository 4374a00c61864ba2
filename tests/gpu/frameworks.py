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
    for name in NAMES:
        container = machine.container(memory_bytes=SLICE)
        try:
            found = answer(machine.start_in(container, python, TAKE, name))
        except UnmeasuredError as error:
            print(f"[gpu] {name} fails by itself or in the slice: {error}", flush=True)
            continue
        if "missing" in found:
            continue
        above = max(found["got"] - SLICE, 0)
        note = f"sees {found['total'] / MIB:.0f} MiB, gets {found['got'] / MIB:.0f} MiB; then "
        figures.append(
            Figure(f"frameworks {name}", above, "bytes beyond", 0, {}, note + found["refused"])
        )
    if not figures:
        raise UnmeasuredError(f"none of {', '.join(NAMES)} for {python}")
    return figures
