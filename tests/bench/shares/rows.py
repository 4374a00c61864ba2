"""The rows of the table of shares: which containers run together, and what is judged of them."""

from __future__ import annotations

import dataclasses
import itertools
from collections.abc import Callable, Sequence

from support.shares import loads
from support.shares.judge import Outcome, Tenant, judge
from support.shares.loads import Load

# By what it measures: the value, lower is better; the goal and its unit.
Judged = dict[str, float]
Goals = dict[str, tuple[float, str]]


@dataclasses.dataclass(frozen=True)
class Case:
    """One run. `quick`: it stays in the short table."""

    name: str
    run: Callable[[Sequence[str]], Judged]
    quick: bool = False


@dataclasses.dataclass(frozen=True)
class Row:
    """elsewhere: by a model's name, the goals in it that replace the others."""

    name: str
    goals: Goals
    cases: list[Case]
    elsewhere: dict[str, Goals] = dataclasses.field(default_factory=dict)


def points_off(outcome: Outcome, asked: Sequence[float]) -> float:
    return max(
        abs(100 * got.share - core) for got, core in zip(outcome.tenants, asked, strict=True)
    )


def uncounted(outcome: Outcome) -> float:
    """Work outside of all turns, in points."""
    return max(100 * (got.work - got.held) for got in outcome.tenants)


def _together(tenants: Sequence[Tenant], quick: bool = False) -> Case:
    cores = [one.core for one in tenants]

    def run(options: Sequence[str]) -> Judged:
        outcome = judge(options, tenants)
        return {
            "off": points_off(outcome, cores),
            "lost": 100 * outcome.lost(sum(cores) / 100),
            "work outside turns": uncounted(outcome),
        }

    return Case(_name(tenants), run, quick)


def _name(tenants: Sequence[Tenant]) -> str:
    """Neighbours with the same load are told together, equal ones by their number."""
    words = []
    for load, group in itertools.groupby(tenants, lambda one: one.load):
        cores = [str(one.core) for one in group]
        equal = len(cores) > 2 and len(set(cores)) == 1
        told = f"{len(cores)} of {cores[0]}" if equal else "/".join(cores)
        words.append(f"{told}: {load.name if load else 'no process'}")
    return ", ".join(words)


def _shares(name: str, lost: float, cases: list[Case]) -> Row:
    goals = {
        "off": (2.0, "points"),
        "lost": (lost, "% of the GPU"),
        "work outside turns": (1.0, "points"),
    }
    return Row(name, goals, cases)


def pairs() -> list[Row]:
    rows = []
    for first, second in [(30, 70), (50, 50), (20, 40), (90, 10)]:
        chosen = (
            itertools.combinations_with_replacement(loads.PAIRED, 2)
            if first == second
            else itertools.product(loads.PAIRED, repeat=2)
        )
        quick = {
            (loads.AHEAD, loads.AHEAD),
            (loads.WAITED, loads.MS_25),
            (loads.MS_25, loads.WAITED),
            (loads.GRAPHS, loads.COPIES),
        }
        cases = [
            _together([Tenant(first, one), Tenant(second, other)], (one, other) in quick)
            for one, other in chosen
        ]
        rows.append(_shares(f"two {first}/{second}", 3.0, cases))
    return rows


def on_streams() -> Row:
    """Kernels that run at once end at once: the next ones must be queued by then."""
    cases = [
        _together([Tenant(core, load.on_streams(count)), Tenant(100 - core, loads.AHEAD)], quick)
        for core, quick in ((30, True), (70, False))
        for count in (2, 8)
        for load in (loads.AHEAD, loads.MS_1)
    ]
    return _shares("two, one on streams", 3.0, cases)


def several() -> list[Row]:
    rows = []
    for name, cores in [
        ("three 10/30/60", [10, 30, 60]),
        ("eight at 12", [12] * 8),
        ("sixteen at 6", [6] * 16),
    ]:
        cases = [
            _together([Tenant(core, load) for core in cores], load is loads.AHEAD)
            for load in (loads.AHEAD, loads.WAITED, loads.MS_5, loads.MS_25, loads.GRAPHS)
        ]
        mixed = itertools.cycle(loads.PAIRED)
        tenants = [Tenant(core, load) for core, load in zip(cores, mixed, strict=False)]
        cases.append(dataclasses.replace(_together(tenants), name="a different load in each"))
        rows.append(_shares(name, 5.0, cases))
    return rows


def alone() -> list[Row]:
    def case(core: int, load: Load, quick: bool) -> Case:
        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, [Tenant(core, load)])
            return {"off": abs(100 * outcome.tenants[0].work - core)}

        return Case(f"{core}: {load.name}", run, quick)

    goal = {"off": (2.0, "points")}
    cores = (10, 30, 50, 80)
    one_stream = (
        loads.AHEAD,
        loads.MS_5,
        loads.MS_300,
        loads.GRAPHS,
        loads.ONE_BLOCK,
        loads.COPIES,
    )
    rows = [
        Row(
            "alone",
            goal,
            [case(core, load, core == 50) for core in cores for load in one_stream]
            + [case(core, loads.LAUNCH_BOUND, False) for core in (10, 30, 50)],
        )
    ]
    for count in (2, 4, 8):
        cases = [
            case(core, load.on_streams(count), (core, count) == (50, 8))
            for core in cores
            for load in (loads.AHEAD, loads.MS_1, loads.GRAPHS)
        ]
        rows.append(Row(f"alone on {count} streams", goal, cases))
    return [*rows, _only_threads(), _threads(), _beside_a_copy()]


def _only_threads() -> Row:
    """The same without any neighbour."""

    def case(core: int, load: Load) -> Case:
        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, [Tenant(core, load)])
            return {
                "off": abs(100 * outcome.tenants[0].work - core),
                "longest wait": outcome.tenants[0].report["longest_us"] / 1e3,
            }

        return Case(f"{core}: {load.name}", run, core == 50)

    cases = [
        case(core, load.in_threads(threads, 2))
        for core in (10, 30, 50, 80)
        for threads in (2, 4, 8)
        for load in (loads.AHEAD, loads.MS_1, loads.MS_5)
    ]
    return Row("alone in threads", {"off": (2.0, "points"), "longest wait": (1000.0, "ms")}, cases)


def _threads() -> Row:
    """Event pairs do not show the GPU time of several threads, so they have turns though alone."""

    def case(core: int, load: Load) -> Case:
        tenants = [Tenant(core, load), Tenant(100 - core, loads.IDLE)]

        def run(options: Sequence[str]) -> Judged:
            return {"off": abs(100 * judge(options, tenants).tenants[0].share - core)}

        return Case(f"{core}: {load.name}", run, core == 50)

    cases = [
        case(core, load.in_threads(threads, 2))
        for core in (10, 30, 50, 80)
        for threads in (2, 4)
        for load in (loads.AHEAD, loads.MS_1)
    ]
    return Row("alone in threads, a neighbour idle", {"off": (2.0, "points")}, cases)


def _beside_a_copy() -> Row:
    def run(options: Sequence[str]) -> Judged:
        window_s, loops = 2.0, []
        for bare in (False, True):
            outcome = judge(options, [Tenant(50, loads.LONG_COPY)], window_s=window_s, bare=bare)
            loops.append(outcome.tenants[0].report["kernels"])
        return {"fewer loops": 100 * (1 - loops[0] / loops[1])}

    return Row(
        "alone, copies uncharged",
        {"fewer loops": (2.0, "%")},
        [Case(f"50: {loads.LONG_COPY.name}", run, True)],
    )
