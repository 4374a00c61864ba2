"""`vcuda advise --apply` every hour, replayed on traces: what is refused, and what is reclaimed.

Each step a workload needs memory and compute; above its share it is refused, gets what is then
recommended, and goes on. The recommendations are the product's own; a share never exceeds what was
asked for. Beside it the same with VPA's rule: the 90th percentile of daily peaks and 15 %.
"""

from __future__ import annotations

import os
import random
from collections.abc import Callable, Iterable

from bench import advice_traces
from bench.advice_traces import GIB, STEP_SECONDS, Trace
from bench.result import Figure
from vcuda_hook.advice.demand import Demand, Sample
from vcuda_hook.advice.recommend import LEAST_SECONDS, PERCENTILE, Advice, recommend

WORKLOADS, DAYS = 60, 28  # of each shape
# A step stands for so many of the agent's samples.
_SAMPLES = STEP_SECONDS // 10
REFUSED_PERCENT, RECLAIMED_PERCENT = 0.1, 30.0
_SEED = 20
_BEGIN = 1.7e9
_APPLIED_EACH = 3600 // STEP_SECONDS
# Names the file of a public trace: see advice_traces.read.
TRACE = "ADVICE_TRACE"
_PEER, _VPA_MARGIN = "VPA's rule", 0.15


class Outcome:
    """Of some workloads. steps, refused: of running containers. runs: containers started."""

    def __init__(self) -> None:
        self.steps = self.refused = self.runs = self.runs_refused = 0
        self.asked = self.kept = self.core_asked = self.core_kept = 0.0
        self.wanted = self.waited = 0.0

    def add(self, other: Outcome) -> None:
        for name, value in other.__dict__.items():
            setattr(self, name, getattr(self, name) + value)

    @property
    def refused_percent(self) -> float:
        return 100 * self.refused / max(1, self.steps)

    @property
    def reclaimed_percent(self) -> float:
        return 100 * (1 - self.kept / self.asked)


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Refusals and reclaimed memory over all shapes, then of each."""
    sources: dict[str, list[Trace]] = {
        name: [make(random.Random(f"{_SEED} {name} {n}"), DAYS) for n in range(WORKLOADS)]
        for name, make in advice_traces.SHAPES.items()
    }
    path = os.environ.get(TRACE, "")
    if path:
        public = advice_traces.read(path, random.Random(_SEED), WORKLOADS, DAYS)
        sources[advice_traces.PUBLIC] = list(public)
    ours = {name: _replayed(traces, recommend) for name, traces in sources.items()}
    theirs = {name: _replayed(traces, _by_vpa) for name, traces in sources.items()}
    for name, outcome in ours.items():
        if outcome.wanted:
            say(_line(name, outcome))
    # Those with a request that a person chose: see advice_traces.
    made = [name for name in ours if name not in advice_traces.OF_CARDS]
    figures = _figures("all", _sum(ours[n] for n in made), _sum(theirs[n] for n in made), True)
    for name, outcome in ours.items():
        figures += _figures(name, outcome, theirs[name], goals=name in advice_traces.OF_CARDS)
    return figures


def _figures(name: str, ours: Outcome, theirs: Outcome, goals: bool = False) -> list[Figure]:
    note = f"{ours.steps} steps, {ours.runs_refused} of {ours.runs} containers refused"
    reclaims = goals and name == "all"
    return [
        Figure(
            f"advice: refused, {name}",
            ours.refused_percent,
            "% of steps",
            REFUSED_PERCENT if goals else None,
            {_PEER: theirs.refused_percent},
            note,
        ),
        Figure(
            f"advice: reclaimed, {name}",
            ours.reclaimed_percent,
            "% of memory",
            RECLAIMED_PERCENT if reclaims else None,
            {_PEER: theirs.reclaimed_percent},
            is_least=True,
        ),
    ]


def _line(name: str, outcome: Outcome) -> str:
    core = 100 * (1 - outcome.core_kept / outcome.core_asked)
    waited = 100 * outcome.waited / max(1.0, outcome.wanted)
    return f"{name}: {core:.0f} % of the compute reclaimed, {waited:.1f} % of the wanted waits"


def _sum(outcomes: Iterable[Outcome]) -> Outcome:
    total = Outcome()
    for outcome in outcomes:
        total.add(outcome)
    return total


def _replayed(traces: Iterable[Trace], advise: Callable[[Demand], Advice]) -> Outcome:
    return _sum(_replay(trace, advise) for trace in traces)


def _replay(trace: Trace, advise: Callable[[Demand], Advice]) -> Outcome:
    outcome, demand = Outcome(), Demand()
    asked = int(trace.asked * GIB)
    limit, core = asked, trace.core
    run_refused, part = False, 0.0
    for number, step in enumerate(trace.steps):
        if step is None:
            continue
        if step.starts or number % _APPLIED_EACH == 0:
            limit, core = _applied(trace, advise(demand), limit, core)
        if step.starts:
            outcome.runs, run_refused = outcome.runs + 1, False
            part = trace.takes * limit
        need = int(step.need * GIB)
        refused = need > limit
        held = min(limit, max(need, int(part)))
        used = min(step.compute, float(core))
        now = _BEGIN + number * STEP_SECONDS
        demand.add(
            Sample(limit, core, held, used, step.compute - used, int(refused), _SAMPLES), now
        )
        outcome.steps += 1
        outcome.refused += refused
        outcome.runs_refused += refused and not run_refused
        run_refused |= refused
        outcome.asked, outcome.kept = outcome.asked + asked, outcome.kept + limit
        outcome.core_asked, outcome.core_kept = (
            outcome.core_asked + trace.core,
            outcome.core_kept + core,
        )
        outcome.wanted, outcome.waited = (
            outcome.wanted + step.compute,
            outcome.waited + step.compute - used,
        )
        if refused:
            limit, core = _applied(trace, advise(demand), limit, core)
    return outcome


def _applied(trace: Trace, advice: Advice, limit: int, core: int) -> tuple[int, int]:
    """The share after `vcuda advise --apply`: at most what was asked for."""
    if advice.memory_bytes is not None:
        limit = min(int(trace.asked * GIB), advice.memory_bytes)
    if advice.core_percent is not None:
        core = min(trace.core, advice.core_percent)
    return limit, core


def _by_vpa(demand: Demand) -> Advice:
    """VPA's target for memory beside our advice for compute."""
    advice = recommend(demand)
    usual = demand.memory.percentile(PERCENTILE)
    if usual is None or demand.last - demand.first < LEAST_SECONDS:
        return advice._replace(memory_bytes=None)
    return advice._replace(memory_bytes=int(usual * (1 + _VPA_MARGIN)))
