"""Questions of speed: what the shim adds to a driver call, and to a training step."""

from __future__ import annotations

import contextlib
import json
import os
import statistics
import subprocess
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from bench.result import Figure
from gpu.machine import SOURCES, Machine, UnmeasuredError, answer
from support.files import ROOT

CALLS = os.path.join(ROOT, "tests", "bench", "calls.c")
TRAIN = os.path.join(SOURCES, "train.py")
# Of each training process, in each round: windows, and the steps of one.
WINDOWS, STEPS = 80, 10
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


def calls(machine: Machine, rounds: int) -> list[Figure]:
    bare, inside = in_turns(machine, rounds, machine.compiled(CALLS))
    figures = []
    for call in MEASURED:
        ns = statistics.median(s[call] for s in inside) - statistics.median(s[call] for s in bare)
        figures.append(Figure(f"overhead.call {call}", ns, "ns added", None, {}))
    return figures


class Trainer:
    """A process of train.py that waits for windows of steps. Raises UnmeasuredError."""

    def __init__(self, process: subprocess.Popen[str]) -> None:
        self.process = process
        self.missing = self._said().get("missing")

    def step_ms(self) -> float:
        assert self.process.stdin
        self.process.stdin.write(f"{STEPS}\n")
        self.process.stdin.flush()
        return float(self._said()["step_ms"])

    def _said(self) -> Any:
        assert self.process.stdout
        line = self.process.stdout.readline()
        return json.loads(line) if line else answer(self.process)


def in_windows(measures: Sequence[Callable[[], float]], count: int) -> list[list[float]]:
    """COUNT times what each measures, one after the other; every other time in reverse, so that a
    GPU or processor that becomes slower favours none."""
    rows = []
    for number in range(count):
        back = -1 if number % 2 else 1
        rows.append([measure() for measure in measures[::back]][::back])
    return rows


def percent_apart(pairs: Iterable[tuple[float, float]]) -> list[float]:
    return [(second / first - 1) * 100 for first, second in pairs]


def training(machine: Machine, rounds: int, python: str) -> list[Figure]:
    """PYTHON is the interpreter that has PyTorch.

    In each round three processes are loaded, two on the driver alone, and their windows alternate:
    the two show how far processes are apart that do the same.
    """
    found: list[list[float]] = []
    own = []
    for _ in range(rounds):
        with contextlib.ExitStack() as stack:
            processes = [machine.start(python, TRAIN, stdin=subprocess.PIPE) for _ in range(2)]
            inside = machine.start_in(machine.container(), python, TRAIN, stdin=subprocess.PIPE)
            for process in (*processes, inside):
                stack.enter_context(process)
                stack.callback(process.kill)
            trainers = [Trainer(process) for process in (*processes, inside)]
            if trainers[0].missing:
                raise UnmeasuredError(f"no {trainers[0].missing} for {python}")
            rows = in_windows([trainer.step_ms for trainer in trainers], WINDOWS)
        own.append(statistics.median(percent_apart((row[0], row[2]) for row in rows)))
        found += rows
    alone_ms = statistics.median(row[0] for row in found)
    of_rounds = ", ".join(f"{percent:.2f}" for percent in own)
    figures = []
    for name, unit, goal, column, note in (
        ("step", "% added", 0.5, 2, f"by round {of_rounds}; {alone_ms:.2f} ms alone; "),
        ("of two alone", "% apart", None, 1, ""),
    ):
        percents = percent_apart((row[0], row[column]) for row in found)
        low, middle, high = statistics.quantiles(percents, n=4)
        note += f"half of {len(percents)} windows {low:.2f} to {high:.2f}"
        figures.append(Figure(f"overhead.training {name}", middle, unit, goal, {}, note))
    return figures
