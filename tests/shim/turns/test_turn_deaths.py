"""Containers and the turn keeper die in the middle of turns, in virtual time."""

from __future__ import annotations

import json

import pytest

from support.shares import deaths, loads
from support.shares.judge import MODELS, Tenant, judge

pytestmark = pytest.mark.usefixtures("built", "short_windows")
PAIR = [Tenant(30, loads.AHEAD), Tenant(70, loads.AHEAD)]


@pytest.mark.parametrize("model", ["default", "slice 30 ms", "no preemption"])
@pytest.mark.parametrize("holder", [0, 1], ids=["the small share", "the large share"])
def test_a_killed_containers_turn_ends_within_5_ms(model: str, holder: int) -> None:
    """The other one goes on as soon as its own share allows it."""
    outcome = judge(MODELS[model], PAIR, window_s=2, scripts=[deaths.holder_killed(holder)])
    assert json.loads(outcome.said[0]) <= 5
    works = [100 * got.work for got in outcome.tenants]
    expected = [0.0, 0.0]
    expected[1 - holder] = PAIR[1 - holder].core
    assert works == [pytest.approx(value, abs=2) for value in expected]


def test_without_its_keeper_an_only_container_of_several_threads_goes_on() -> None:
    """By its own rate, which is charged too much then."""
    tenants = [Tenant(30, loads.AHEAD.in_threads(2, 2))]
    outcome = judge([], tenants, window_s=3, warming_s=1.5, scripts=[deaths.KEEPER_KILLED])
    assert (outcome.said, outcome.words) == (["true\n"], 0)
    assert outcome.tenants[0].work > 0.1
    assert outcome.tenants[0].report["longest_us"] <= 1e6


def test_only_container_has_turns_again_from_the_next_keeper() -> None:
    tenants = [Tenant(30, loads.AHEAD.in_threads(2, 2))]
    outcome = judge([], tenants, scripts=[deaths.upgrade(0.0)], keepers=2)
    assert (outcome.said, outcome.keeper_survived) == (["true\n"], True)
    assert 100 * outcome.tenants[0].work == pytest.approx(30, abs=2)


@pytest.mark.parametrize("load", [loads.AHEAD, loads.WAITED], ids=lambda one: one.name)
def test_without_its_keeper_no_container_is_stuck(load: loads.Load) -> None:
    """The driver's slices and each one's own rate decide then, which is less exact."""
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(
        MODELS["default"], tenants, window_s=3, warming_s=1.5, scripts=[deaths.KEEPER_KILLED]
    )
    assert (outcome.said, outcome.words, outcome.keeper_survived) == (["true\n"], 0, False)
    assert [got.work > 0.05 for got in outcome.tenants] == [True, True]
    longest_us = [got.report["longest_us"] for got in outcome.tenants]
    assert [longest <= 1e6 for longest in longest_us] == [True, True]


def test_without_its_keeper_a_container_tries_again_after_twice_as_long_each_time() -> None:
    """1 s at first, 64 s at most."""
    load = loads.MS_25
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge([], tenants, window_s=220, warming_s=1, scripts=[deaths.TRIES])
    pauses = [round(seconds) for seconds in json.loads(outcome.said[0])]
    assert pauses == [1, 2, 4, 8, 16, 32, 64, 64]
