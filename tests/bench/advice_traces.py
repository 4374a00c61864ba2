"""Traces of what workloads need of a GPU, for the replay of `vcuda advise`.

Their sizes and shapes are made up, but for `serving`: its memory and compute are drawn from the
quantiles of GenTD26, a day of 104 containers that serve Stable Diffusion at Alibaba. Source:
github.com/alibaba/clusterdata, cluster-trace-v2026-GenAI (SoCC '25). That trace itself is replayed
if its files are there: `read`.
"""

from __future__ import annotations

import csv
import math
import random
from bisect import bisect_right
from collections import defaultdict
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

STEP_SECONDS = 300
EACH_DAY = 24 * 3600 // STEP_SECONDS
GIB = 1 << 30
_MOST_GIB = 80
# Part of a limit that a person chose and that is not used, on average. Source: "Autopilot: workload
# autoscaling at Google", EuroSys '20: 46 %, and 23 % where Autopilot chooses the limit. Here each
# user's is drawn around that, against the 95th percentile of use; none asks for less than the most
# that the program needs.
_SLACK, _SLACKS_DIFFER = 0.46, 0.3
_USE = 0.95
# Quantiles of GenTD26: highest memory of a day in GiB; memory as a part of that; compute in
# percent, where it is not idle, as it is for two thirds of the time.
_PEAKS = ((0.0, 17.4), (0.1, 33.0), (0.25, 35.0), (0.5, 38.9), (0.75, 42.9), (0.9, 45.4), (1, 47.3))
_PARTS = ((0.0, 0.0), (0.01, 0.27), (0.05, 0.37), (0.25, 0.52), (0.5, 0.61), (0.75, 0.7),
          (0.9, 0.78), (0.95, 0.86), (0.99, 0.99), (1.0, 1.0))  # fmt: skip
_COMPUTE = ((0.0, 1.0), (0.1, 6.1), (0.25, 11.9), (0.5, 20.5), (0.75, 26.7), (0.9, 41.1),
            (0.95, 65.8), (1.0, 99.7))  # fmt: skip
_IDLE = 0.67
_CARD_GIB = 48


class Step(NamedTuple):
    """need: GiB. compute: percent of the GPU's time that is wanted. starts: a container starts."""

    need: float
    compute: float
    starts: bool = False


# None: no container runs.
Steps = Sequence["Step | None"]


class Trace(NamedTuple):
    """asked: GiB. core: percent asked for. takes: the part of its limit that a framework takes
    whatever it needs; 0: it takes what it needs.
    """

    steps: Steps
    asked: float
    core: int
    takes: float = 0.0


def steady(r: random.Random, days: int) -> Trace:
    base, compute = r.uniform(1, 12), r.uniform(5, 60)
    return _asked(
        r,
        [
            Step(base * r.uniform(0.97, 1), compute * r.uniform(0.8, 1.1), step == 0)
            for step in range(days * EACH_DAY)
        ],
    )


def daily(r: random.Random, days: int) -> Trace:
    """High by day and low by night, lower at weekends."""
    base, more, compute, begin = r.uniform(1, 5), r.uniform(1, 8), r.uniform(10, 70), r.random()
    steps = []
    for step in range(days * EACH_DAY):
        at = step / EACH_DAY
        high = (0.5 - 0.5 * math.cos(2 * math.pi * (at + begin))) * (1 if at % 7 < 5 else 0.6)
        steps.append(Step(base + more * high * r.uniform(0.85, 1), compute * high, step == 0))
    return _asked(r, steps)


def bursty(r: random.Random, days: int) -> Trace:
    """Low, with rare bursts of unlike heights."""
    base, rare, compute = r.uniform(1, 3), 1 / r.uniform(100, 600), r.uniform(20, 90)
    steps, left, height = [], 0, 0.0
    for step in range(days * EACH_DAY):
        if left <= 0 and r.random() < rare:
            left, height = r.randint(1, 8), base * (1 + min(3.0, r.lognormvariate(-0.3, 0.5)))
        left -= 1
        burst = left >= 0
        need = height if burst else base * r.uniform(0.9, 1)
        steps.append(Step(need, compute if burst else 3.0, step == 0))
    return _asked(r, steps)


def growing(r: random.Random, days: int) -> Trace:
    base, growth, compute = r.uniform(1, 4), r.uniform(0.01, 0.05), r.uniform(10, 50)
    return _asked(
        r,
        [
            Step(base * (1 + growth * step / EACH_DAY) * r.uniform(0.98, 1), compute, step == 0)
            for step in range(days * EACH_DAY)
        ],
    )


def jobs(r: random.Random, days: int) -> Trace:
    """One after the other, each with a need of its own, as of a queue or a notebook."""
    median, spread, compute = r.uniform(1, 6), r.uniform(0.1, 0.4), r.uniform(20, 100)
    steps: list[Step | None] = []
    while len(steps) < days * EACH_DAY:
        steps += [None] * r.randint(0, 60)
        need = median * r.lognormvariate(0, spread)
        steps += [
            Step(need * r.uniform(0.9, 1), compute, step == 0) for step in range(r.randint(6, 60))
        ]
    return _asked(r, steps[: days * EACH_DAY])


def frameworks(r: random.Random, days: int) -> Trace:
    """JAX, vLLM and TensorFlow: they need half of what was asked for and take what they see."""
    asked, takes, compute = float(r.randint(8, 24)), r.choice((0.75, 0.9, 0.97)), 40.0
    steps = [
        Step(asked * 0.5, compute * r.uniform(0.5, 1), step % EACH_DAY == 0)
        for step in range(days * EACH_DAY)
    ]
    return Trace(steps, asked, 50, takes)


def serving(r: random.Random, days: int) -> Trace:
    """A container of GenTD26 in a share of a whole card's memory."""
    steps = []
    for step in range(days * EACH_DAY):
        if step % EACH_DAY == 0:
            peak = _drawn(_PEAKS, r.random())
        compute = 0.0 if r.random() < _IDLE else _drawn(_COMPUTE, r.random())
        steps.append(Step(peak * _drawn(_PARTS, r.random()), compute, step == 0))
    return Trace(steps, _CARD_GIB, 100)


SHAPES: dict[str, Callable[[random.Random, int], Trace]] = {
    shape.__name__: shape for shape in (steady, daily, bursty, growing, jobs, frameworks, serving)
}

# Of containers with whole cards: what their users would have asked for is unknown.
PUBLIC = "GenTD26"
OF_CARDS = (serving.__name__, PUBLIC)


def read(memory_csv: str, r: random.Random, count: int, days: int) -> Iterator[Trace]:
    """`count` workloads, each made of the days of `days` containers of GenTD26 in turn.

    memory_csv: pod_gpu_memory_used_bytes_anon.csv. It has one day. The highest sample of each
    STEP_SECONDS counts; compute is left out.
    """
    of: defaultdict[str, list[float]] = defaultdict(lambda: [0.0] * EACH_DAY)
    rows: defaultdict[str, int] = defaultdict(int)
    with open(memory_csv, newline="") as file:
        for row in csv.DictReader(file):
            place = int(float(row["timestamp_anon"])) // STEP_SECONDS % EACH_DAY
            its = of[row["container_ip"]]
            its[place] = max(its[place], float(row["value"]) / GIB)
            rows[row["container_ip"]] += 1
    most = max(rows.values())
    whole = [of[each] for each in sorted(of) if rows[each] >= 0.9 * most]
    for _ in range(count):
        needs = [need for _ in range(days) for need in r.choice(whole)]
        steps = [Step(need, 0.0, number == 0) for number, need in enumerate(needs)]
        yield Trace(steps, _CARD_GIB, 100)


def _asked(r: random.Random, steps: Steps) -> Trace:
    """With a request as a person chooses it."""
    slack = r.uniform(_SLACK - _SLACKS_DIFFER, _SLACK + _SLACKS_DIFFER)
    needs = sorted(step.need for step in steps if step)
    computes = sorted(step.compute for step in steps if step)
    memory, compute = (
        max(of[-1], of[int(_USE * len(of))] / (1 - slack)) for of in (needs, computes)
    )
    return Trace(steps, min(math.ceil(memory), _MOST_GIB), min(100, math.ceil(compute)))


def _drawn(quantiles: Sequence[tuple[float, float]], part: float) -> float:
    at = min(bisect_right(quantiles, (part, math.inf)), len(quantiles) - 1)
    (low, first), (high, last) = quantiles[at - 1], quantiles[at]
    return first + (last - first) * (part - low) / (high - low)
