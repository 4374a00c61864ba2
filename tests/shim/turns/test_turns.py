"""Shares of GPU time with the turn keeper, on clocks as unkind as hardware's, in virtual time."""

from __future__ import annotations

import dataclasses
from collections.abc import Sequence
from typing import Any

import pytest

from support.shares import loads
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built", "short_windows")
UNKIND = ["default", "slice 30 ms", "no preemption"]
# Of a short window: the keeper counts a turn, which lasts up to 90 ms, at its end.
A_TURN = 0.02


def percent(outcome: Outcome) -> list[float]:
    return [100 * got.share for got in outcome.tenants]


def near(cores: Sequence[float], points: float = 2) -> list[Any]:
    return [pytest.approx(core, abs=points) for core in cores]


def check(model: str, cores: Sequence[int], chosen: Sequence[Load], lost: float) -> None:
    """Each container's turns are its share, its work lies in them, and little is lost."""
    tenants = [Tenant(core, load) for core, load in zip(cores, chosen, strict=True)]
    outcome = judge(MODELS[model], tenants)
    assert percent(outcome) == near(cores)
    assert [got.work <= got.held + A_TURN for got in outcome.tenants] == [True] * len(cores)
    assert outcome.lost(sum(cores) / 100) <= lost
    assert outcome.errors == ""


@pytest.mark.parametrize("model", UNKIND)
@pytest.mark.parametrize(
    ("cores", "chosen"),
    [
        ((30, 70), (loads.AHEAD, loads.AHEAD)),
        ((30, 70), (loads.MS_300, loads.WAITED)),
        ((50, 50), (loads.AHEAD, loads.MS_25)),
        ((50, 50), (loads.GRAPHS, loads.MS_5)),
        ((20, 40), (loads.WAITED, loads.COPIES)),
        ((20, 40), (loads.ONE_BLOCK, loads.GRAPHS)),
        ((90, 10), (loads.WAITED, loads.MS_25)),
        ((90, 10), (loads.AHEAD, loads.WAITED)),
    ],
    ids=lambda values: " and ".join(
        value.name if isinstance(value, Load) else str(value) for value in values
    ),
)
def test_two_containers_hold_their_shares(
    model: str, cores: Sequence[int], chosen: Sequence[Load]
) -> None:
    check(model, cores, chosen, 0.03)


@pytest.mark.parametrize("model", UNKIND)
@pytest.mark.parametrize("threads", [2, 4])
def test_several_threads_and_streams_get_their_share_beside_an_idle_neighbour(
    model: str, threads: int
) -> None:
    """Their event pairs do not show it, so they have turns."""
    tenants = [Tenant(30, loads.AHEAD.in_threads(threads, 2)), Tenant(70, loads.IDLE)]
    outcome = judge(MODELS[model], tenants, window_s=5)
    assert 100 * outcome.tenants[0].work == pytest.approx(30, abs=2)
    assert outcome.words > 0


@pytest.mark.parametrize("core", [10, 80])
@pytest.mark.parametrize("threads", [2, 8])
@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
def test_several_threads_and_streams_get_their_share_as_the_only_container(
    core: int, threads: int, load: Load
) -> None:
    outcome = judge(MODELS["default"], [Tenant(core, load.in_threads(threads, 2))])
    assert 100 * outcome.tenants[0].work == pytest.approx(core, abs=2)
    assert outcome.words > 0
    assert outcome.errors == ""


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_1], ids=lambda load: load.name)
def test_no_thread_of_an_only_container_starves(load: Load) -> None:
    """On one stream they have no turns, and share the bucket."""
    outcome = judge([], [Tenant(30, dataclasses.replace(load, threads=4))], window_s=3)
    assert outcome.words == 0
    assert outcome.tenants[0].report["longest_us"] <= 200e3


def test_a_request_ends_the_long_turn_of_a_program_that_had_the_gpu_alone() -> None:
    tenants = [Tenant(30, loads.REQUESTS), Tenant(70, loads.MS_1.in_threads(4, 2))]
    outcome = judge([], tenants, window_s=30)
    assert outcome.tenants[0].report["p99_us"] <= 15e3
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=2)


@pytest.mark.parametrize("model", UNKIND)
@pytest.mark.parametrize(("core", "gap_us"), [(5, 9_000), (20, 3_000), (20, 9_000), (50, 300)])
def test_program_with_gaps_gets_its_share_beside_requests(
    model: str, core: int, gap_us: int
) -> None:
    """Each request of the neighbour takes it out of its time alone, without costing it credit."""
    tenants = [Tenant(core, loads.with_gaps(gap_us)), Tenant(30, loads.REQUESTS)]
    work = judge(MODELS[model], tenants).tenants[0].work
    assert 100 * work == pytest.approx(min(core, 1e5 / (1_000 + gap_us)), abs=2)


def test_one_thread_on_several_streams_has_no_turns_beside_an_idle_neighbour() -> None:
    tenants = [Tenant(30, loads.AHEAD.on_streams(4)), Tenant(70, loads.IDLE)]
    outcome = judge(MODELS["default"], tenants, window_s=5)
    assert 100 * outcome.tenants[0].work == pytest.approx(30, abs=2)
    assert outcome.words == 0


@pytest.mark.parametrize("other", [loads.WAITED, loads.MS_5], ids=lambda load: load.name)
def test_gaps_of_a_program_do_not_hide_what_a_slow_switch_costs(other: Load) -> None:
    """With turns of 15 ms it is 4.3 %."""
    check("switch 500 us", (50, 50), (loads.WAITED, other), 0.03)


@pytest.mark.parametrize("model", UNKIND)
def test_three_containers_hold_10_30_and_60_percent(model: str) -> None:
    check(model, (10, 30, 60), (loads.AHEAD, loads.WAITED, loads.MS_25), 0.05)


@pytest.mark.parametrize("model", UNKIND)
def test_eight_containers_hold_12_percent_each(model: str) -> None:
    check(model, [12] * 8, [loads.AHEAD] * 4 + [loads.WAITED, loads.MS_5] * 2, 0.05)


@pytest.mark.parametrize("model", UNKIND)
def test_sixteen_containers_hold_6_percent_each(model: str) -> None:
    check(model, [6] * 16, [loads.AHEAD, loads.MS_5] * 8, 0.05)


@pytest.mark.parametrize("core", [10, 50, 80])
@pytest.mark.parametrize(
    "load",
    [
        *(loads.AHEAD.on_streams(count) for count in (1, 2, 4, 8)),
        *(loads.MS_1.on_streams(count) for count in (1, 2, 4, 8)),
        loads.MS_5,
        loads.MS_300,
        loads.GRAPHS,
        loads.ONE_BLOCK,
        loads.COPIES,
    ],
    ids=lambda load: load.name,
)
def test_a_container_alone_works_its_core(core: int, load: Load) -> None:
    outcome = judge(MODELS["default"], [Tenant(core, load)])
    assert [100 * got.work for got in outcome.tenants] == near([core])
    assert (outcome.words, outcome.wakes) == (0, 0)


def test_a_copy_from_the_host_is_not_charged() -> None:
    kernels = [
        judge(MODELS["default"], [Tenant(50, loads.LONG_COPY)], window_s=2, bare=bare)
        .tenants[0]
        .report["kernels"]
        for bare in (False, True)
    ]
    assert kernels[0] >= 0.98 * kernels[1]


def test_a_second_run_has_the_same_outcome() -> None:
    tenants = [Tenant(30, loads.WAITED), Tenant(70, loads.AHEAD)]
    first, second = (judge(MODELS["default"], tenants, window_s=2) for _ in range(2))
    assert first == second
