"""Questions of GPU time: the share of a container that is alone, and what is charged."""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from bench.result import Figure
from gpu.machine import SOURCES, Container, Machine, answer, wait_until_ready

TENANT = os.path.join(SOURCES, "tenant.c")
GOAL_POINTS = 2.0
GOAL_LOST_PERCENT = 3.0
LONGEST_LAUNCHED_NS = 1e6


class Shape(NamedTuple):
    how: str  # as tenant.c has it
    kernel_ns: float
    blocks: int  # 0: one for each multiprocessor


SHAPES = {
    "async 50 us": Shape("async", 50e3, 0),
    "sync 5 ms": Shape("sync", 5e6, 0),
    "sync 300 ms": Shape("sync", 300e6, 0),
    "graph of 100 x 50 us": Shape("graph", 50e3, 0),
    "one block, async 50 us": Shape("async", 50e3, 1),
}
LIMITS = (10, 30, 50, 80)


class Compute:
    """ns_per_step: how long a step of tenant.c takes on a GPU that nothing else uses."""

    def __init__(self, machine: Machine, seconds: float) -> None:
        self.machine, self.seconds = machine, seconds
        self.tenant = machine.compiled(TENANT)
        self.ns_per_step = 1.0
        # A first guess, then one of the length that is measured with.
        for length_ns in (1e5, 5e6):
            found = self.alone(Shape("events", length_ns, 0))
            per_kernel = found["steps"] / found["kernels"]
            self.ns_per_step = found["interval_ms"] * 1e6 / per_kernel

    def command(self, shape: Shape, start_file: str = "-", seconds: float = 0) -> list[str]:
        steps, window = str(self.steps(shape)), str(seconds or self.seconds)
        return [self.tenant, shape.how, steps, window, str(shape.blocks), start_file]

    def steps(self, shape: Shape) -> int:
        """Of each of its kernels."""
        return max(1, round(shape.kernel_ns / self.ns_per_step))

    def alone(self, shape: Shape) -> Any:
        """What a program says that has the GPU to itself, without the shim."""
        return answer(self.machine.start(*self.command(shape)))

    def gpu_share(self, found: Any) -> float:
        """Of the GPU's time, by the work that was done."""
        return float(found["steps"] * self.ns_per_step / 1e9 / found["seconds"])

    def in_container(self, shape: Shape, percent: int) -> float:
        container = self.machine.container(percent)
        return self.gpu_share(answer(self.machine.start_in(container, *self.command(shape))))

    def together(self, shape: Shape, percents: tuple[int, ...]) -> list[tuple[Container, Any]]:
        start_file = os.path.join(self.machine.folder, f"start-{self.machine.containers}")
        containers = [self.machine.container(percent) for percent in percents]
        command = self.command(shape, start_file)
        running = [self.machine.start_in(container, *command) for container in containers]
        for process in running:
            wait_until_ready(process)
        with open(start_file, "w", encoding="ascii"):
            pass
        return [(c, answer(process)) for c, process in zip(containers, running)]


def whole_of(compute: Compute, shape: Shape) -> float:
    """The work of a load that has the GPU to itself: below 1 where a launch takes time.

    1 for long kernels, of which a window holds few.
    """
    if shape.kernel_ns > LONGEST_LAUNCHED_NS:
        return 1.0
    said = compute.alone(shape)
    return min(1.0, compute.gpu_share(said) + said["gap_seconds"] / said["seconds"])


def shares_alone(compute: Compute) -> list[Figure]:
    """The worst of the limits, by shape: of the work that the load does without a limit."""
    figures = []
    for name, shape in SHAPES.items():
        whole = whole_of(compute, shape)
        off = [abs(compute.in_container(shape, p) / whole * 100 - p) for p in LIMITS]
        figures.append(Figure(f"share.alone {name}", max(off), "points", GOAL_POINTS, {}))
    return figures


def charged(compute: Compute) -> list[Figure]:
    """What each of two busy containers was charged, against the GPU time of its work."""
    found = compute.together(SHAPES["sync 5 ms"], (50, 50))
    true_ns = sum(said["steps"] * compute.ns_per_step for _, said in found)
    charged_ns = sum(container.read_usage().gpus[0].busy_ns for container, _ in found)
    return [Figure("charged for true time", charged_ns / true_ns, "x", None, {})]
