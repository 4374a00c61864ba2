"""How long containers wait for their turns, what turns cost, and when none passes."""

from __future__ import annotations

from typing import Any

import pytest

from support.shares import loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built", "short_windows")
ELASTIC = (("policy", "elastic"),)


@pytest.mark.parametrize(
    ("neighbour", "goal_ms"), [(loads.AHEAD, 15), (loads.MS_25, 40), (loads.MS_300, 315)]
)
def test_a_request_waits_for_the_kernel_that_runs_and_little_more(
    neighbour: Load, goal_ms: float
) -> None:
    tenants = [Tenant(30, loads.REQUESTS), Tenant(70, neighbour)]
    outcome = judge(MODELS["default"], tenants, window_s=20)
    assert outcome.tenants[0].report["p99_us"] / 1000 - 1 <= goal_ms


@pytest.mark.parametrize(
    "neighbour",
    [
        loads.AHEAD,
        loads.MS_25,
        loads.MS_300,
    ],
    ids=lambda load: load.name,
)
def test_short_requests_do_not_change_a_neighbours_share(neighbour: Load) -> None:
    tenants = [Tenant(30, loads.REQUESTS), Tenant(70, neighbour)]
    outcome = judge(MODELS["default"], tenants, window_s=60)
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=2)


def test_a_request_ends_a_turn_that_goes_on_for_a_small_share() -> None:
    """The 70 % go on for up to 90 ms, until the 5 % have earned a turn. A request waits for no more
    than a usual turn of each.
    """
    tenants = [Tenant(20, loads.REQUESTS), Tenant(5, loads.AHEAD), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, window_s=20)
    assert outcome.tenants[0].report["longest_us"] / 1000 <= 40


@pytest.mark.parametrize(
    ("count", "core", "goal_ms", "load"),
    [
        (8, 12, 150, loads.AHEAD),
        (8, 12, 150, loads.MS_1),
        (8, 12, 150, loads.MS_5),
        (16, 6, 300, loads.AHEAD),
        (16, 6, 300, loads.MS_1),
        (16, 6, 300, loads.MS_5),
    ],
    ids=lambda value: value.name if isinstance(value, Load) else str(value),
)
def test_no_container_of_many_waits_for_long(
    count: int, core: int, goal_ms: float, load: Load
) -> None:
    outcome = judge(MODELS["default"], [Tenant(core, load)] * count)
    longest_us = max(got.report["longest_us"] for got in outcome.tenants)
    assert longest_us / 1000 <= goal_ms


@pytest.mark.parametrize("neighbour", [None, loads.IDLE], ids=["no process", "an idle process"])
@pytest.mark.parametrize("words", [(), ELASTIC], ids=["fixed", "elastic"])
def test_beside_idle_containers_no_turn_passes(words: Any, neighbour: Load | None) -> None:
    tenants = [Tenant(50, loads.AHEAD, words), Tenant(50, neighbour)]
    outcome = judge(MODELS["default"], tenants, arbiter=bool(words))
    assert (outcome.words, outcome.wakes) == (0, 0)
    assert 100 * outcome.tenants[0].work == pytest.approx(100 if words else 50, abs=2)


@pytest.mark.parametrize(
    ("kernel_us", "gap_us", "part"),
    [
        (50, 20, 0.97),
        (50, 300, 0.97),
        (50, 2000, 0.97),
        (1000, 20, 0.97),
        (1000, 300, 0.97),
        (1000, 2000, 0.97),
    ],
)
def test_two_elastic_containers_with_gaps_work_as_much_as_without_turns(
    kernel_us: int, gap_us: int, part: float
) -> None:
    tenants = [Tenant(50, Load("gaps", kernel_us, gap_us=gap_us), ELASTIC)] * 2
    ours = judge(MODELS["default"], tenants, arbiter=True)
    driver = judge(MODELS["default"], tenants, bare=True)
    works = [sum(got.work for got in outcome.tenants) for outcome in (ours, driver)]
    assert works[0] >= part * works[1]
