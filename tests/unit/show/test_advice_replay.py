"""The replay of `make bench ONLY=advice` counts what it says."""

from __future__ import annotations

import random
from pathlib import Path

import pytest

from bench import advice, advice_traces
from bench.advice_traces import EACH_DAY, SHAPES, STEP_SECONDS, Step, Trace
from vcuda_hook.advice.recommend import recommend


def replayed(*days: float, asked: float = 10, takes: float = 0.0) -> advice.Outcome:
    """A container that needs so many GiB on each of the days."""
    steps = [Step(need, 20, at == 0) for need in days for at in range(EACH_DAY)]
    return advice._replay(Trace(steps, asked, 50, takes), recommend)


def test_what_is_never_needed_is_reclaimed_after_the_first_day() -> None:
    found = replayed(*[2.0] * 10)
    assert (found.steps, found.refused, found.runs) == (10 * EACH_DAY, 0, 10)
    first_day = 100 * (1 - (1 + 9 * 0.25) / 10)
    assert found.reclaimed_percent == pytest.approx(first_day, abs=2)


def test_a_need_above_the_share_is_refused_once_for_each_bump() -> None:
    found = replayed(2, 2, 2.6, 2.6, 2)
    assert (found.refused, found.runs_refused) == (1, 1)
    assert found.refused_percent == pytest.approx(100 / (5 * EACH_DAY))


def test_a_share_never_exceeds_what_was_asked_for() -> None:
    found = replayed(9.9, 9.9, 9.9)
    assert (found.kept, found.refused) == (found.asked, 0)


@pytest.mark.parametrize("takes", [0.75, 0.9])
def test_a_framework_that_takes_all_keeps_what_it_asked_for(takes: float) -> None:
    found = replayed(*[5.0] * 10, takes=takes)
    assert (found.kept, found.refused) == (found.asked, 0)


@pytest.mark.parametrize("name", SHAPES)
def test_no_user_asks_for_less_than_the_highest_need(name: str) -> None:
    for seed in range(5):
        trace = SHAPES[name](random.Random(seed), 2)
        needs = [step.need for step in trace.steps if step]
        assert len(trace.steps) == 2 * EACH_DAY
        assert 0 < max(needs) <= trace.asked <= 80
        assert next(step for step in trace.steps if step).starts


def test_the_public_trace_is_read_by_container_with_the_highest_sample(tmp_path: Path) -> None:
    rows = ["timestamp_anon,value,container_ip"]
    for at in range(0, 86400, STEP_SECONDS // 2):
        rows += [f"{at}.0,{(1 + at % STEP_SECONDS // 150) * 2**30}.0,a", f"{at}.0,{3 * 2**30}.0,b"]
    rows.append(f"0.0,{9 * 2**30}.0,seen-once")
    path = tmp_path / "trace.csv"
    path.write_text("\n".join(rows))
    (found,) = advice_traces.read(str(path), random.Random(1), 1, 6)
    needs = [step.need for step in found.steps if step]
    days = [set(needs[day * EACH_DAY : (day + 1) * EACH_DAY]) for day in range(6)]
    assert {tuple(day) for day in days} == {(2.0,), (3.0,)}
