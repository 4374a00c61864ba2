"""Rows of the table of shares: a container or the turn keeper ends in the middle of a turn."""

from __future__ import annotations

import json
from collections.abc import Sequence

from bench.shares.rows import Case, Judged, Row
from support.shares import deaths, loads
from support.shares.judge import Tenant, judge
from support.shares.loads import Load

CORES = (30, 70)


def rows() -> list[Row]:
    return [_holder_killed(), _keeper_killed(), _keeper_replaced()]


def _pair(load: Load, other: Load) -> list[Tenant]:
    return [Tenant(core, one) for core, one in zip(CORES, (load, other), strict=True)]


def _holder_killed() -> Row:
    """What waits of the queue ends with the process, but for the kernel that runs."""

    def case(load: Load, holder: int) -> Case:
        def run(options: Sequence[str]) -> Judged:
            script = deaths.holder_killed(holder)
            outcome = judge(options, _pair(load, load), scripts=[script])
            left = outcome.tenants[1 - holder]
            return {
                "its turn lasts": float(json.loads(outcome.said[0])),
                "other off": abs(100 * left.work - CORES[1 - holder]),
            }

        return Case(f"{load.name}, {CORES[holder]} killed", run, load is loads.AHEAD)

    cases = [case(load, holder) for load in (loads.AHEAD, loads.GRAPHS) for holder in (0, 1)]
    goals = {"its turn lasts": (5.0, "ms"), "other off": (2.0, "points")}
    return Row("holder killed", goals, cases)


def _keeper_killed() -> Row:
    """Each container goes by its own bucket then; none is stuck."""

    def case(load: Load, other: Load) -> Case:
        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, _pair(load, other), window_s=3, scripts=[deaths.KEEPER_KILLED])
            assert outcome.said == ["true\n"]
            return {
                "longest wait": max(got.report["longest_us"] for got in outcome.tenants) / 1e3,
            }

        return Case(f"30: {load.name}, 70: {other.name}", run, load is loads.AHEAD)

    cases = [case(load, loads.AHEAD) for load in (loads.AHEAD, loads.WAITED, loads.MS_5)]
    return Row("keeper killed", {"longest wait": (1000.0, "ms")}, cases)


def _keeper_replaced() -> Row:
    """Judged by work, against one keeper: while none runs, no turn is counted."""

    def case(load: Load, other: Load, away_s: float) -> Case:
        def run(options: Sequence[str]) -> Judged:
            outcome = judge(
                options, _pair(load, other), scripts=[deaths.upgrade(away_s)], keepers=2
            )
            assert (outcome.said, outcome.keeper_survived) == (["true\n"], True)
            undisturbed = judge(options, _pair(load, other))
            works = zip(outcome.tenants, undisturbed.tenants, strict=True)
            return {"off": max(100 * abs(one.work - before.work) for one, before in works)}

        name = f"30: {load.name}, 70: {other.name}, {away_s:g} s"
        return Case(name, run, load is loads.AHEAD)

    pairs = [(loads.AHEAD, loads.AHEAD), (loads.WAITED, loads.MS_25), (loads.GRAPHS, loads.MS_5)]
    cases = [case(*pair, away_s) for pair in pairs for away_s in (0.0, 1.0)]
    # In the second without turns the driver's switches lose a fifth of the GPU.
    models = ("switch 500 us", "slice 0.5 ms")
    costly = {model: {"off": (3.0, "points")} for model in models}
    return Row("keeper replaced", {"off": (2.0, "points")}, cases, elsewhere=costly)
