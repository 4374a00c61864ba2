"""More rows of the table of shares: throughput, waits, policies and quiet neighbours."""

from __future__ import annotations

from collections.abc import Sequence

from bench.shares.rows import Case, Judged, Row, points_off
from support.shares import keeper_cost, loads
from support.shares.judge import Tenant, judge
from support.shares.loads import Load

ELASTIC = ("policy", "elastic")
CONTENDED = 8  # GPUs


def throughput() -> Row:
    """Two elastic programs that leave gaps, against the driver's own slices."""

    def case(kernel_us: int, gap_us: int) -> Case:
        load = Load(f"{kernel_us} us, gap {gap_us} us", kernel_us, gap_us=gap_us)
        tenants = [Tenant(50, load, (ELASTIC,))] * 2

        def run(options: Sequence[str]) -> Judged:
            ours, driver = (
                sum(got.work for got in outcome.tenants)
                for outcome in (
                    judge(options, tenants, arbiter=True),
                    judge(options, tenants, bare=True),
                )
            )
            return {"less work": 100 * (1 - ours / driver)}

        return Case(load.name, run, (kernel_us, gap_us) == (50, 20))

    cases = [case(kernel, gap) for kernel in (50, 1_000) for gap in (20, 300, 2_000)]
    return Row("two elastic with gaps", {"less work": (3.0, "% of the driver's")}, cases)


def requests_beside(load: Load, words: tuple[tuple[str, str], ...], quick: bool) -> Case:
    """30 percent that work 1 ms every 50 ms, with these words, beside 70 that always do."""
    tenants = [Tenant(30, loads.REQUESTS, words), Tenant(70, load)]

    def run(options: Sequence[str]) -> Judged:
        # A hundred requests more than the tail that is judged.
        outcome = judge(options, tenants, window_s=30.0)
        one, other = outcome.tenants
        return {
            "p99 of the wait": one.report["p99_us"] / 1e3 - loads.REQUESTS.kernel_us / 1e3,
            "neighbour off": abs(100 * other.share - 70),
        }

    return Case(f"30: {loads.REQUESTS.name}, 70: {load.name}", run, quick)


def requests() -> list[Row]:
    """goal: 15 ms, beside long kernels one of them more."""
    rows = []
    threads = loads.MS_1.in_threads(4, 2)
    beside = [(loads.AHEAD, 15), (threads, 15), (loads.MS_25, 40), (loads.MS_300, 315)]
    for load, goal_ms in beside:
        goals = {"p99 of the wait": (float(goal_ms), "ms"), "neighbour off": (2.0, "points")}
        cases = [requests_beside(load, (), load is loads.AHEAD)]
        rows.append(Row(f"requests beside {load.name}", goals, cases))
    return rows


def gaps_beside_requests() -> Row:
    """A program with gaps, and a neighbour that wants the GPU now and then: it gets its share, or
    all that it can use."""

    def case(core: int, gap_us: int) -> Case:
        load = loads.with_gaps(gap_us)

        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, [Tenant(core, load), Tenant(30, loads.REQUESTS)])
            possible = 100 * load.kernel_us / (load.kernel_us + gap_us)
            return {"off": abs(100 * outcome.tenants[0].work - min(core, possible))}

        return Case(f"{core}: {load.name}", run, (core, gap_us) == (20, 9_000))

    asked = [(5, 9_000), (20, 3_000), (20, 9_000), (50, 1_000), (50, 300)]
    return Row("gaps beside requests", {"off": (2.0, "points")}, [case(*each) for each in asked])


def longest_waits() -> list[Row]:
    rows = []
    for name, count, core, goal_ms in [("eight", 8, 12, 150), ("sixteen", 16, 6, 300)]:

        def case(load: Load, count: int = count, core: int = core) -> Case:
            def run(options: Sequence[str]) -> Judged:
                outcome = judge(options, [Tenant(core, load)] * count)
                longest_us = max(got.report["longest_us"] for got in outcome.tenants)
                return {"longest wait": longest_us / 1e3}

            return Case(f"{count} at {core}: {load.name}", run, load is loads.AHEAD)

        cases = [case(load) for load in (loads.AHEAD, loads.WAITED, loads.MS_1, loads.MS_5)]
        goals = {"longest wait": (float(goal_ms), "ms")}
        rows.append(Row(f"longest wait of {name}", goals, cases))
    return rows


def quiet() -> Row:
    """A container that has the GPU to itself."""

    def case(core: int, load: Load, neighbour: Load | None, words: tuple[str, str]) -> Case:
        tenants = [Tenant(core, load, (words,)), Tenant(100 - core, neighbour)]
        elastic = words == ELASTIC

        def run(options: Sequence[str]) -> Judged:
            outcome = judge(options, tenants, arbiter=elastic)
            bare = judge(options, tenants[:1], bare=True)
            entitled = bare.tenants[0].work * (1 if elastic else core / 100)
            return {
                "lost": 100 * (entitled - outcome.tenants[0].work),
                "turns": outcome.words,
                "wake-ups": outcome.wakes,
            }

        name = f"{words[1]} {core}: {load.name}, {neighbour.name if neighbour else 'no process'}"
        return Case(name, run, load is loads.AHEAD)

    cases = [
        case(50, load, neighbour, words)
        for load in (loads.AHEAD, loads.MS_5)
        for neighbour in (None, loads.IDLE)
        for words in (("policy", "fixed"), ELASTIC)
    ]
    goals = {"lost": (2.0, "points"), "turns": (0.0, "words"), "wake-ups": (0.0, "")}
    return Row("idle neighbours", goals, cases)


def keeper() -> Row:
    """The only row in real time: what the turn keeper takes of this machine's processors."""

    def run(options: Sequence[str]) -> Judged:
        part = keeper_cost.part_of_a_core(options, CONTENDED, loads.MS_5, seconds=5.0)
        return {"processor time": 100 * part}

    # One case: a second one beside it would slow both down, so that fewer turns pass.
    case = Case(f"30/70 on each: {loads.MS_5.name}", run, quick=True)
    return Row("keeper of eight GPUs", {"processor time": (1.0, "% of a core")}, [case])


def policies() -> Row:
    """What docs/policies.md promises."""

    def elastic(core: int, **more: str) -> tuple[int, dict[str, str]]:
        return core, {"policy": "elastic", **more}

    def weighted(core: int, weight: int) -> tuple[int, dict[str, str]]:
        return core, {"policy": "weighted", "weight": str(weight)}

    def fixed(core: int) -> tuple[int, dict[str, str]]:
        return core, {}

    rest = (10, {"policy": "best-effort"})
    asked: list[tuple[str, list[tuple[int, dict[str, str]]], list[float]]] = [
        ("elastic alone", [elastic(30)], [100]),
        ("elastic below a ceiling", [elastic(30, core_limit="60")], [60]),
        ("fixed and elastic", [fixed(30), elastic(30)], [30, 70]),
        ("elastic by core", [elastic(10), elastic(30)], [25, 75]),
        ("weighted", [weighted(20, 100), weighted(20, 300)], [35, 65]),
        ("priority", [elastic(20, priority="1"), elastic(20)], [80, 20]),
        ("best-effort beside fixed", [fixed(40), rest], [40, 60]),
        ("best-effort beside elastic", [fixed(30), elastic(20), rest], [30, 69, 1]),
        ("eight elastic", [elastic(10)] * 8, [12.5] * 8),
    ]

    def case(
        name: str, words: list[tuple[int, dict[str, str]]], expected: list[float], load: Load
    ) -> Case:
        tenants = [Tenant(core, load, tuple(more.items())) for core, more in words]

        def run(options: Sequence[str]) -> Judged:
            return {"off": points_off(judge(options, tenants, arbiter=True), expected)}

        return Case(f"{name}: {load.name}", run, load is loads.MS_1 and len(words) == 2)

    cases = [
        case(name, words, expected, load)
        for name, words, expected in asked
        for load in (loads.MS_1, loads.MS_5, loads.MS_25)
    ]
    return Row("policies", {"off": (3.0, "points")}, cases)
