"""A container writes false signals into its own page; its neighbour keeps its share."""

from __future__ import annotations

import pytest

from support.shares import loads
from support.shares.audit import AUDIT
from support.shares.false_pages import (
    BUSY_FOR_EVER,
    DEAD_PROCESSES,
    FLIPS,
    HONEST,
    LATE,
    LATE_ALONE,
    NEVER_BUSY,
    PAGE,
    RANDOM,
    RINGING,
    SHORT_LIES,
    SHORT_TURNS,
    TRUNCATED,
    TURNS,
    WANTS_FOR_EVER,
)
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built", "short_windows")


# The first doubt ends in it; then the others wait for the queue once more, and get the time back.
DOUBTED_S = 10
MOST_WAIT_US = 600_000


def report(what: str, costs: int = 1) -> str:
    more = ", and its turns cost twice the time" if costs == 2 else ""
    return f"vcuda-turn-keeper: container c0 {what}; others wait 5 ms for its queue at most{more}\n"


ENDLESS = report("does not let its GPU queue end")
CUT = report("has cut its usage page short", costs=2)
LIES = report("gives false signals of its GPU queue again and again", costs=2)


def beside(script: str, working: bool) -> Outcome:
    """30 percent that write false signals, and 70 that do not."""
    tenants = [Tenant(30, loads.AHEAD if working else None), Tenant(70, loads.AHEAD)]
    window_s = DOUBTED_S if script == BUSY_FOR_EVER else 0
    return judge(MODELS["default"], tenants, scripts=[PAGE + script], window_s=window_s)


@pytest.mark.parametrize(
    ("script", "working", "errors"),
    [
        (HONEST, False, set()),
        (BUSY_FOR_EVER, False, {ENDLESS}),
        (BUSY_FOR_EVER, True, {ENDLESS}),
        (WANTS_FOR_EVER, False, set()),
        (RINGING, True, set()),
        (NEVER_BUSY, True, {LIES}),
        (TRUNCATED, True, {CUT}),
        (RANDOM, True, {LIES}),
    ],
    ids=["honest", "busy", "busy beside work", "wants", "rings", "never busy", "cut", "random"],
)
def test_a_false_page_takes_no_work_from_a_neighbour_and_is_reported(
    script: str, working: bool, errors: set[str]
) -> None:
    """Judged by work: a turn in which the driver slices another's kernels is not whole."""
    outcome = beside(script, working)
    assert (outcome.keeper_survived, set(outcome.errors.splitlines(True))) == (True, errors)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30.5
    assert outcome.tenants[1].report["longest_us"] <= MOST_WAIT_US


def test_doubt_lasts_twice_as_long_each_time() -> None:
    """5 s, 10 s, 20 s and 40 s, each after a wait of 50 ms."""
    tenants = [Tenant(30, None), Tenant(70, loads.MS_5)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + BUSY_FOR_EVER], window_s=42)
    assert outcome.errors == 4 * ENDLESS
    assert 100 * outcome.tenants[1].work >= 66


def test_a_container_whose_wish_stays_unseen_is_answered_and_waits_for_its_turn() -> None:
    """Else it takes the keeper for dead, and works by its bucket in the turns of its neighbour."""
    tenants = [Tenant(30, loads.AHEAD), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + NEVER_BUSY], window_s=1)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)


@pytest.mark.parametrize(
    ("model", "load", "window_s"),
    [
        ("default", loads.MS_300, 30),
        ("no preemption", loads.MS_300, 60),  # in 30 s the work is 65 to 77, as kernels fall
        ("switch 500 us", loads.MS_25, 30),
    ],
    ids=lambda value: value.name if isinstance(value, Load) else value,
)
def test_hidden_long_kernels_cost_their_container_its_turns_and_no_other_work(
    model: str, load: Load, window_s: int
) -> None:
    """Only the neighbour is never doubted: its queue waits behind kernels that it cannot see."""
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    scripts = [PAGE + NEVER_BUSY, AUDIT]
    outcome = judge(MODELS[model], tenants, scripts=scripts, warming_s=45, window_s=window_s)
    assert set(outcome.errors.splitlines(True)) <= {LIES}
    assert 100 * outcome.tenants[1].work >= 69
    assert 100 * outcome.tenants[0].work <= 30


@pytest.mark.parametrize(
    "load", [loads.AHEAD, loads.MS_300, loads.REQUESTS], ids=lambda load: load.name
)
def test_an_honest_container_is_charged_for_no_hidden_work(load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[AUDIT], warming_s=40, window_s=10)
    assert "c0" in outcome.said[0]
    assert "Hidden" not in outcome.said[0]


@pytest.mark.parametrize(
    "neighbour",
    [None, loads.IDLE, Load("50 us every 40 s", 50, gap_us=40_000_000)],
    ids=["none", "idle", "seldom at work"],
)
def test_an_honest_container_that_is_alone_is_charged_for_no_hidden_work(
    neighbour: Load | None,
) -> None:
    """While no turns run the keeper sleeps, and writes no figures."""
    tenants = [Tenant(30, loads.AHEAD), *([Tenant(70, neighbour)] if neighbour else [])]
    outcome = judge(MODELS["default"], tenants, scripts=[AUDIT], warming_s=40, window_s=10)
    assert "Hidden" not in outcome.said[0]
    assert 100 * outcome.tenants[0].work == pytest.approx(30, abs=2)


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
def test_a_container_that_cuts_its_page_has_half_of_its_share(load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TRUNCATED])
    assert 100 * outcome.tenants[0].share == pytest.approx(15, abs=2)


def test_a_container_that_cuts_its_page_has_its_share_beside_an_idle_one() -> None:
    tenants = [Tenant(30, loads.AHEAD), Tenant(70, loads.IDLE)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TRUNCATED])
    assert 100 * outcome.tenants[0].share == pytest.approx(30, abs=2)


@pytest.mark.parametrize(
    ("core", "ms", "script"),
    [(30, 12, NEVER_BUSY), (30, 12, TRUNCATED), (5, 80, NEVER_BUSY)],
    ids=["12 ms", "12 ms, cut", "5 percent"],
)
def test_hidden_kernels_take_little_however_long_and_however_small_the_share(
    core: int, ms: int, script: str
) -> None:
    tenants = [Tenant(core, Load(f"{ms} ms", 1000 * ms)), Tenant(100 - core, loads.AHEAD)]
    scripts = [PAGE + script, AUDIT]
    outcome = judge(MODELS["default"], tenants, scripts=scripts, warming_s=45, window_s=15)
    assert 100 * outcome.tenants[1].work >= 100 - core - 2
    assert 100 * outcome.tenants[0].work <= 0.7 * core


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fields_that_change_at_random_moments_take_no_work_from_a_neighbour(
    seed: int, load: Load
) -> None:
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + FLIPS % seed])
    assert outcome.keeper_survived
    assert set() < set(outcome.errors.splitlines(True)) <= {ENDLESS, LIES}
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30


ELASTIC = (("policy", "elastic"),)


def test_short_lies_of_a_small_share_take_no_work_from_a_large_one() -> None:
    tenants = [Tenant(10, loads.AHEAD), Tenant(90, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TURNS + SHORT_LIES])
    assert set(outcome.errors.splitlines(True)) == {LIES}
    assert 100 * outcome.tenants[1].work == pytest.approx(90, abs=2)


def test_others_wait_no_longer_for_a_queue_than_the_share_pays_for() -> None:
    tenants = [Tenant(10, loads.AHEAD), Tenant(90, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TURNS + LATE % 2900])
    assert set(outcome.errors.splitlines(True)) == {ENDLESS}
    assert 100 * outcome.tenants[1].work > 88


@pytest.mark.parametrize("core", [30, 50])
def test_a_neighbour_gets_back_what_an_elastic_container_held_at_a_higher_rate(core: int) -> None:
    """While all wait for one, the arbiter finds no use of the GPU, and grants all of it to each."""
    tenants = [Tenant(core, None, ELASTIC), Tenant(100 - core, loads.AHEAD)]
    script = PAGE + TURNS + LATE % 200
    outcome = judge(MODELS["default"], tenants, window_s=10, scripts=[script], arbiter=True)
    assert 100 * outcome.tenants[1].work == pytest.approx(100 - core, abs=2)


def test_an_elastic_container_with_long_kernels_leaves_a_fixed_share_alone() -> None:
    tenants = [Tenant(50, loads.MS_300, ELASTIC), Tenant(50, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, window_s=10, arbiter=True)
    assert 100 * outcome.tenants[1].work == pytest.approx(50, abs=2)


def test_a_container_pays_for_what_others_wait_after_it_was_alone() -> None:
    """Its neighbour leaves it the GPU for 6 ms after each kernel."""
    load = Load("5 ms, then 6 ms", 5_000, gap_us=6_000)
    tenants = [Tenant(50, None), Tenant(50, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TURNS + LATE_ALONE])
    assert 100 * outcome.tenants[1].work > 20


def test_short_turns_give_no_fixed_share_more_than_its_rate() -> None:
    tenants = [Tenant(30, None), Tenant(30, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TURNS + SHORT_TURNS])
    assert [100 * got.held for got in outcome.tenants] == [
        pytest.approx(15, abs=2),
        pytest.approx(30, abs=2),
    ]


@pytest.mark.parametrize("count", [1, 20])
def test_a_container_is_believed_when_some_of_its_processes_have_died(count: int) -> None:
    tenants = [Tenant(30, loads.AHEAD), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TURNS + DEAD_PROCESSES % count])
    assert outcome.errors == ""
    held = [100 * got.held for got in outcome.tenants]
    assert held == [pytest.approx(core, abs=2) for core in (30, 70)]
