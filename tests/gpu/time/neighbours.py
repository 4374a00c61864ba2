"""Two busy containers and the turn keeper, in real time: shares, and what is lost.

The rows of the table of shares (tests/bench/shares) that a card can answer. Work is counted in
steps, held time by the keeper.
"""

from __future__ import annotations

import bisect
import contextlib
import math
import os
import subprocess
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple

from bench.result import Figure
from gpu.machine import Container, answer, wait_until_ready
from gpu.time.compute import GOAL_LOST_PERCENT, GOAL_POINTS, Compute, Shape, whole_of
from support.gpu.guest import GIB
from support.ledger.tenants import Tenants
from support.shares.keeper_cost import SHIPPED
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import page_reader

GOAL_OUTSIDE_POINTS = 1.0
LONG_NS = 100e6  # kernels that are longer have a longer window, by as much
SAMPLE_SECONDS = 0.02
LEFT_OUT = 0.2  # of the time in which both work
RATIOS = ((30, 70), (50, 50), (20, 40), (90, 10))
LOADS = {
    "50 us ahead": Shape("async", 50e3, 0),
    "50 us waited": Shape("gap", 50e3, 0),
    "5 ms waited": Shape("sync", 5e6, 0),
    "25 ms waited": Shape("sync", 25e6, 0),
    "300 ms waited": Shape("sync", 300e6, 0),
    "graphs of 100": Shape("graphs", 50e3, 0),
    "one block": Shape("async", 50e3, 1),
    "copies beside": Shape("copies", 50e3, 0),
}
# Each load beside itself is left out where a stranger asks more of the keeper.
PAIRS = (
    ("50 us ahead", "50 us ahead"),
    ("50 us waited", "25 ms waited"),
    ("25 ms waited", "50 us waited"),
    ("graphs of 100", "copies beside"),
    ("5 ms waited", "5 ms waited"),
    ("one block", "50 us ahead"),
    ("300 ms waited", "50 us ahead"),
)


class Got(NamedTuple):
    """Parts of the window. gap: how long the load itself left the GPU idle."""

    work: float
    held: float
    gap: float

    def of_whole(self, whole: float) -> Got:
        """Of what the load gets alone: it may leave a part unused that is no gap of its own."""
        return self._replace(work=self.work / whole, gap=self.gap / whole)

    @property
    def share(self) -> float:
        """Turns, or the work of a container that had the GPU alone."""
        return max(self.work, self.held)

    @property
    def used(self) -> float:
        return self.work + min(self.gap, max(0.0, self.held - self.work))


def judged(asked: Sequence[int], got: Sequence[Got]) -> dict[str, float]:
    """Points that containers are off, percent of the GPU lost, points of work outside of turns.

    asked: in percent.
    """
    lost = sum(asked) / 100 - sum(one.used for one in got)
    return {
        "off": max(abs(100 * one.share - core) for one, core in zip(got, asked)),
        "lost": max(0.0, 100 * lost),
        "outside turns": max(0.0, *(100 * (one.work - one.held) for one in got)),
    }


@contextlib.contextmanager
def keeper(state_dir: str) -> Iterator[None]:
    process = subprocess.Popen([SHIPPED, state_dir, str(os.getpid())])
    try:
        yield
    finally:
        process.terminate()
        process.wait()


def in_turns(compute: Compute, tenants: Tenants, percent: int) -> Container:
    """A container with pages that the keeper of these tenants has."""
    machine = compute.machine
    container = machine.container(percent)
    id = f"c{machine.containers}"
    memory_bytes = min(machine.card.memory_bytes // 4, GIB)
    tenants.add_record(id, shares=[GpuShare(machine.uuid, memory_bytes, percent)])
    for page in (container.limits, container.usage):
        os.unlink(page)
        os.symlink(f"{tenants.ledger.containers}/{id}/{os.path.basename(page)}", page)
    return container


Samples = list[tuple[float, float]]


def held_seconds(container: Container) -> float:
    with open(container.limits, "rb") as page:
        return page_reader.read_limits(page.read()).gpus[0].turn_held_ns / 1e9


def run_together(
    compute: Compute, loads: Sequence[str], percents: Sequence[int]
) -> tuple[list[Any], list[Samples]]:
    """What the tenants report, and samples of their held seconds, by the same clock."""
    machine, shapes = compute.machine, [LOADS[load] for load in loads]
    folder = os.path.join(machine.folder, f"turns-{machine.containers}")
    seconds = compute.seconds * max(1.0, *(shape.kernel_ns / LONG_NS for shape in shapes))
    tenants = Tenants(folder)
    start_file = os.path.join(folder, "start")
    containers = [in_turns(compute, tenants, percent) for percent in percents]
    held: list[Samples] = [[] for _ in containers]
    with keeper(tenants.state_dir):
        running = [
            machine.start_in(container, *compute.command(shape, start_file, seconds=seconds))
            for container, shape in zip(containers, shapes)
        ]
        try:
            for process in running:
                wait_until_ready(process)
            with open(start_file, "w", encoding="ascii"):
                pass
            with ThreadPoolExecutor() as readers:
                reports = [readers.submit(answer, process) for process in running]
                while not all(report.done() for report in reports):
                    for container, samples in zip(containers, held):
                        samples.append((time.monotonic(), held_seconds(container)))
                    time.sleep(SAMPLE_SECONDS)
            return [report.result() for report in reports], held
        finally:
            for process in running:
                process.kill()


def at(samples: Samples, moment: float) -> float:
    """The value at a moment: between two samples at which it has changed, a part of the way."""
    changes = [samples[0]]
    changes += [two for one, two in zip(samples, samples[1:]) if two[1] != one[1]]
    after = bisect.bisect_right(changes, (moment, math.inf))
    if after in (0, len(changes)):
        return changes[min(after, len(changes) - 1)][1]
    (begin, low), (end, high) = changes[after - 1], changes[after]
    return low + (high - low) * (moment - begin) / (end - begin)


def got_of(said: Any, held: Samples, window: tuple[float, float], kernel_s: float) -> Got:
    kernels: Samples = [(moment, kernels * kernel_s) for moment, kernels, _ in said["progress"]]
    gaps: Samples = [(moment, gap) for moment, _, gap in said["progress"]]
    begin, end = window
    return Got(*((at(of, end) - at(of, begin)) / (end - begin) for of in (kernels, held, gaps)))


def window_of(reports: Sequence[Any]) -> tuple[float, float]:
    """While all worked; without the beginning, in which saved credit counts."""
    begin = max(said["progress"][0][0] for said in reports)
    end = min(said["progress"][-1][0] for said in reports)
    return begin + (end - begin) * LEFT_OUT, end


def both(compute: Compute, loads: Sequence[str], percents: Sequence[int]) -> list[Got]:
    reports, held = run_together(compute, loads, percents)
    window = window_of(reports)
    return [
        got_of(said, of, window, compute.steps(LOADS[load]) * compute.ns_per_step / 1e9)
        for said, of, load in zip(reports, held, loads)
    ]


def shares_of_two(compute: Compute) -> list[Figure]:
    """The worst pair of each ratio, and its name."""
    whole = {load: whole_of(compute, shape) for load, shape in LOADS.items()}
    figures = []
    for percents in RATIOS:
        worst: dict[str, tuple[float, str]] = {}
        for loads in PAIRS:
            name = " and ".join(loads)
            got = [
                one.of_whole(whole[load])
                for one, load in zip(both(compute, loads, percents), loads)
            ]
            found = judged(percents, got)
            for what, value in found.items():
                worst[what] = max(worst.get(what, (-1.0, "")), (value, name))
        ratio = "/".join(map(str, percents))
        for what, unit, goal in (
            ("off", "points", GOAL_POINTS),
            ("lost", "%", GOAL_LOST_PERCENT),
            ("outside turns", "points", GOAL_OUTSIDE_POINTS),
        ):
            value, name = worst[what]
            figures.append(Figure(f"share.two {ratio} {what}", value, unit, goal, {}, name))
    return figures
