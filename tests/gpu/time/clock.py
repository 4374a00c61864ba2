"""Questions of the GPU's clock: how it serves several contexts, streams and copies.

Each is asked on the driver alone, of probe.c. The answers fill the software GPU's model: model.py.
"""

from __future__ import annotations

import os
import statistics
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from bench.result import Figure
from gpu.machine import SOURCES

PROBE = os.path.join(SOURCES, "probe.c")
TINY_NS = 1e3
SHORT_NS = 20e3
COPY_KERNEL_NS = 20e6
LONG_NS = 200e6
MIDDLE_NS = 5e6
PAIR_NS = 50e6  # longer than a slice
FEWEST_RUNS = 5
# Of the runs, at each end: a host that came late makes some too short, and some gaps too long.
TRIMMED = 0.1


class Asked(NamedTuple):
    """What a probe is asked, with kernels of this length."""

    question: str
    kernel_ns: float
    seconds: float = 0

    def command(self, ns_per_step: float) -> list[str]:
        steps = max(1, round(self.kernel_ns / ns_per_step))
        return [self.question, str(steps), str(self.seconds)]


# Asks probes at the same moment, and returns the JSON of each.
Ask = Callable[..., list[Any]]


def trimmed_mean(values: Sequence[float]) -> float:
    cut = int(len(values) * TRIMMED)
    return statistics.fmean(sorted(values)[cut : len(values) - cut])


def slices(ask: Ask, seconds: float) -> list[Figure]:
    """Two contexts that always have short kernels: how long the GPU serves one, and what a change
    costs. A gap in one context's events holds two changes, the other one's slice, and the kernel.

    If hardly any shows, that is the answer: both run at once, or events leave out the other one.
    """
    found = ask(*[Asked("runs", SHORT_NS, seconds)] * 2)
    # The first and the last run may be cut by the window.
    runs = [one["runs"][1:-1] for one in found]
    shown = min(map(len, runs))
    figures = [Figure("clock.slice, turns that show", shown / seconds, "per second", None, {})]
    if shown < FEWEST_RUNS:
        return figures
    served_us = [
        trimmed_mean([kernels for kernels, _ in of]) * one["kernel_us"]
        for of, one in zip(runs, found)
    ]
    changes_us = [
        trimmed_mean([gap for _, gap in of]) - one["kernel_us"] - served
        for of, one, served in zip(runs, found, reversed(served_us))
    ]
    change_us = max(0.0, statistics.fmean(changes_us) / 2)
    return [
        *figures,
        Figure("clock.slice, length", statistics.fmean(served_us) / 1e3, "ms", None, {}),
        Figure("clock.slice, a change of context", change_us, "us", None, {}),
    ]


def preemption(ask: Ask, seconds: float) -> list[Figure]:
    """The median wait for a short kernel beside long ones of another context."""
    asked = Asked("waits", SHORT_NS, seconds), Asked("waits", LONG_NS, seconds)
    part = ask(*asked)[0]["wait_us"] * 1e3 / LONG_NS
    return [Figure("clock.preemption, median wait", 100 * part, "% of it", None, {})]


def beside(ask: Ask, seconds: float) -> list[Figure]:
    """How many times as long an event pair's interval is beside a busy process."""
    pairs, busy = Asked("pairs", PAIR_NS, seconds), Asked("waits", PAIR_NS, seconds)
    (alone,) = ask(pairs)
    found = ask(pairs, busy)[0]
    return [Figure("events.beside a neighbour", found["pair_us"] / alone["pair_us"], "x", None, {})]


def streams(ask: Ask) -> list[Figure]:
    """How much faster as many streams are than one."""
    (found,) = ask(Asked("streams", MIDDLE_NS))
    return [
        Figure(f"clock.streams {name}", one / several, "x", None, {})
        for name, (one, several) in (
            ("narrow", found["narrow_us"]),
            ("filling", found["filling_us"]),
        )
    ]


def copies(ask: Ask) -> list[Figure]:
    """Rates, and how much of the shorter one of kernel and copy runs beside the other."""
    (found,) = ask(Asked("copies", COPY_KERNEL_NS))
    gib = found["bytes"] / (1 << 30)
    kernel_us, copy_us, both_us = (found[f"{name}_us"] for name in ("kernel", "copy", "both"))
    saved_us = kernel_us + copy_us - both_us
    together = 100 * saved_us / min(kernel_us, copy_us)
    return [
        Figure("clock.copies from the host", gib / (copy_us / 1e6), "GiB/s", None, {}),
        Figure("clock.copies within the GPU", gib / (found["within_us"] / 1e6), "GiB/s", None, {}),
        Figure("clock.copies beside a kernel", together, "%", None, {}),
    ]


def submissions(ask: Ask) -> list[Figure]:
    """What a launch takes of its thread."""
    (found,) = ask(Asked("submits", TINY_NS))
    return [Figure("clock.submission", found["submit_us"], "us", None, {})]
