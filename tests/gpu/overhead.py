"""Questions of speed: what the shim adds to a driver call, and to a training step."""

from __future__ import annotations

import os
import statistics
from typing import Any

from bench.result import Figure
from gpu.machine import SOURCES, Machine, UnmeasuredError, answer
from support.files import ROOT

CALLS = os.path.join(ROOT, "tests", "bench", "calls.c")
TRAIN = os.path.join(SOURCES, "train.py")
MEASURED = ("cuLaunchKernel", "cuGraphLaunch", "cuMemAlloc + cuMemFree", "cuMemGetInfo")


def in_turns(machine: Machine, rounds: int, *command: str) -> tuple[list[Any], list[Any]]:
    """What COMMAND says on the driver alone, and in a container with limits that it does not
    reach."""
    bare, inside = [], []
    container = machine.container()
    for round in range(rounds):
        # Each goes first in every other round: the second finds a GPU that is awake.
        for is_inside in (False, True) if round % 2 else (True, False):
            if is_inside:
                inside.append(answer(machine.start_in(container, *command)))
            else:
                bare.append(answer(machine.start(*command)))
    return bare, inside


def added(bare: list[Any], inside: list[Any], key: str) -> float:
    """In percent, of the medians."""
    without = statistics.median(printed[key] for printed in bare)
    return (statistics.median(printed[key] for printed in inside) / without - 1) * 100


def calls(machine: Machine, rounds: int) -> list[Figure]:
    bare, inside = in_turns(machine, rounds, machine.compiled(CALLS))
    figures = []
    for call in MEASURED:
        ns = statistics.median(s[call] for s in inside) - statistics.median(s[call] for s in bare)
        figures.append(Figure(f"overhead.call {call}", ns, "ns added", None, {}))
    return figures


def training(machine: Machine, rounds: int, python: str) -> list[Figure]:
    """PYTHON is the interpreter that has PyTorch."""
    found = answer(machine.start(python, TRAIN))
    if "missing" in found:
        raise UnmeasuredError(f"no {found['missing']} for {python}")
    bare, inside = in_turns(machine, rounds, python, TRAIN)
    percent = added(bare, inside, "step_ms")
    runs = [
        f"{where} {', '.join(format(each['step_ms'], '.2f') for each in printed)}"
        for where, printed in (("alone", bare), ("in a container", inside))
    ]
    return [Figure("overhead.training step", percent, "% added", 0.5, {}, f"{'; '.join(runs)} ms")]
