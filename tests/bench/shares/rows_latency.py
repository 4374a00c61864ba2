"""Rows of the table of shares: containers with low latency, which cut into the turns of others."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from bench.shares.rows import Case, Goals, Judged, Row, points_off
from bench.shares.rows_more import requests_beside
from support.shares import loads
from support.shares.judge import Tenant, judge

LOW = ("latency", "low")
NEIGHBOUR = {"neighbour off": (2.0, "points")}


def requests() -> list[Row]:
    """Goal: 10 ms. Where the GPU does not preempt, a kernel's rest; with slices of 30 ms, a slice.

    There the keeper's division of the time beside a long kernel is wrong, too: a request works 1 ms
    of up to 31, and pays half.
    """
    rows = []
    for load in (loads.AHEAD, loads.MS_25, loads.MS_300):
        cases = [requests_beside(load, (LOW,), load is loads.MS_300)]
        elsewhere: dict[str, Goals] = {}
        if load.kernel_us > 1_000:
            rest_ms = load.kernel_us / 1e3
            slice_ms = min(30.0, rest_ms)
            elsewhere["no preemption"] = {"p99 of the wait": (rest_ms + 5, "ms"), **NEIGHBOUR}
            off = {"neighbour off": (12.0, "points")} if load is loads.MS_300 else NEIGHBOUR
            elsewhere["slice 30 ms"] = {"p99 of the wait": (slice_ms + 5, "ms"), **off}
        goals = {"p99 of the wait": (10.0, "ms"), **NEIGHBOUR}
        rows.append(Row(f"low latency beside {load.name}", goals, cases, elsewhere))
    return rows


def always_at_work() -> Row:
    def case(one: loads.Load, other: loads.Load) -> Case:
        tenants = [Tenant(30, one, (LOW,)), Tenant(70, other)]

        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, tenants)
            off = points_off(outcome, (30, 70))
            return {"off": off, "lost": 100 * outcome.lost(1)}

        name = f"30, low latency: {one.name}, 70: {other.name}"
        return Case(name, run, one is other is loads.AHEAD)

    chosen = itertools.product((loads.AHEAD, loads.MS_25, loads.MS_300), repeat=2)
    goals = {"off": (2.0, "points"), "lost": (3.0, "% of the GPU")}
    return Row("low latency, always at work", goals, [case(*pair) for pair in chosen])
