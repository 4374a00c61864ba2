"""Which work counts as hidden beside a container's turns, and how much of it is charged."""

from __future__ import annotations

from collections.abc import Sequence
from random import Random
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_plugin.agent.bypass.hidden_work import IDLE, POLLS, Hidden, HiddenWork, Poll

PERIOD = 2.0
SHARES = st.floats(0, 1)


def poll(held: float, used: float, free_ns: int = 0, total: float | None = None) -> Poll:
    total = used if total is None else total
    return Poll(PERIOD, {"it": held}, {"it": used}, {"it": free_ns}, total)


def about(seconds: float, *percents: int) -> Any:
    return (pytest.approx(seconds), *percents)


def after(polls: Sequence[Poll]) -> list[Hidden | None]:
    """What each poll finds."""
    gpu = HiddenWork()
    return [gpu.add(one).get("it") for one in polls]


def test_work_beside_turns_is_found_after_some_polls_and_charged_as_a_whole() -> None:
    found = after([poll(0.1, 0.5)] * (POLLS + 3))
    # A second counts when the next poll has shown that no time in it was free.
    assert found[:POLLS] == [None] * POLLS
    seconds = [POLLS * 0.4 * PERIOD, 0.4 * PERIOD, 0.4 * PERIOD]
    assert found[POLLS:] == [about(one, 50, 10) for one in seconds]


def test_a_container_that_rests_after_that_is_not_believed_for_it() -> None:
    lies = [poll(0.1, 0.5)] * (POLLS + 1)
    found = after([*lies, *[poll(0.0, 0.0)] * 50, *[poll(0.1, 0.5)] * 2])
    assert found[-1] == about(0.4 * PERIOD, 50, 10)


def test_a_container_that_obeys_for_some_time_is_believed_again() -> None:
    obeys = [poll(0.5, 0.5)] * (2 * POLLS)
    assert after([*[poll(0.1, 0.5)] * (POLLS + 1), *obeys])[-1] is None


@given(st.lists(st.tuples(SHARES, SHARES), min_size=20, max_size=60))
def test_use_within_turns_is_never_hidden(seconds: list[tuple[float, float]]) -> None:
    polls = [poll(max(pair), min(pair)) for pair in seconds]
    assert set(after(polls)) == {None}


@pytest.mark.parametrize("duty", [0.1, 0.3, 0.5, 0.9])
def test_bursts_are_hardly_ever_charged_where_nvml_shows_another_second(duty: float) -> None:
    """A program that works in bursts, for eleven hours; each figure of NVML's is of another one."""
    random = Random(duty)
    polls = [
        poll(0.7 * (random.random() < duty), 0.7 * (random.random() < duty)) for _ in range(20_000)
    ]
    charged = sum(one.new_seconds for one in after(polls) if one)
    assert charged <= 1e-3 * PERIOD * len(polls)


def test_time_without_turns_is_never_hidden_work() -> None:
    polls = [poll(0.1, 0.9, free_ns=at) for at in range(10)]
    assert set(after(polls)) == {None}


def test_a_turn_without_work_ends_the_suspicion() -> None:
    lies = [poll(0.0, 0.5)] * (POLLS - 1)
    assert set(after([*lies, poll(0.5, 0.5 - IDLE - 0.01), *lies])) == {None}


def test_figures_that_add_up_to_more_than_the_gpu_charge_nothing() -> None:
    assert set(after([poll(0.3, 0.9, total=1.8)] * 20)) == {None}


def test_errors_of_single_seconds_cancel_out() -> None:
    used = [0.6, 0.4, 0.5, 0.5] * 10
    found = after([poll(0.0, part) for part in used])
    charged = sum(one.new_seconds for one in found if one)
    assert charged == pytest.approx(PERIOD * sum(used[:-1]), abs=PERIOD)


def test_a_container_that_has_ended_is_forgotten() -> None:
    gpu = HiddenWork()
    for _ in range(POLLS + 1):
        gpu.add(poll(0.0, 0.5))
    gpu.add(Poll(PERIOD, {}, {}, {}, 0.0))
    assert gpu.add(poll(0.0, 0.5)) == {}


def test_time_without_turns_is_no_sign_that_a_container_obeys_again() -> None:
    lies = [poll(0.1, 0.5)] * (POLLS + 1)
    free = [poll(0.0, 0.9, free_ns=at) for at in range(1, 20)]
    found = after([*lies, *free, *[poll(0.1, 0.5, free_ns=20)] * 2])
    assert found[POLLS + 1 : -1] == [None] * 20
    assert found[-1] == about(0.4 * PERIOD, 50, 10)
