"""A decaying histogram: bounded, known to 5 %, the same after a restart."""

from __future__ import annotations

import json
import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_hook.advice.histogram import GROWTH, HALF_LIFE_SECONDS, Histogram

NOW = 1.7e9
VALUES = st.lists(st.floats(0, 1e12), min_size=1, max_size=50)
TIMES = st.floats(-1e12, 1e12)


def filled(values: Any, now: float = NOW) -> Histogram:
    found = Histogram(1e7, 1e12)
    for value in values:
        found.add(value, now)
    return found


@given(VALUES, st.floats(0.01, 1))
def test_a_percentile_is_above_the_true_one_by_a_bucket_at_most(
    values: list[float], part: float
) -> None:
    true = sorted(values)[math.ceil(part * len(values) - 1e-6) - 1]
    found = filled(values).percentile(part)
    assert found is not None
    assert true * (1 - 1e-9) <= found <= true * GROWTH + 1e7 * GROWTH


@given(st.lists(st.tuples(st.floats(), TIMES), max_size=60))
def test_any_values_and_clocks_leave_a_bounded_histogram(
    samples: list[tuple[float, float]],
) -> None:
    found = Histogram(0.5, 100.0)
    for value, now in samples:
        if not math.isnan(value):
            found.add(value, now)
    tree = json.loads(json.dumps(found.as_json()))
    assert len(tree["weights"]) <= 50
    assert all(math.isfinite(weight) for weight in tree["weights"].values())
    again = Histogram(0.5, 100.0)
    again.load(tree)
    for part in (0.1, 0.5, 0.9):
        end = found.percentile(part)
        assert end is None or 0 < end <= 100
        assert again.percentile(part) == end


def test_a_sample_weighs_half_a_day_later() -> None:
    found = filled([1e9, 1e9])
    found.add(1e10, NOW + HALF_LIFE_SECONDS)  # 1 + 1 against 2
    assert found.percentile(0.49) == pytest.approx(1e9, rel=0.06)
    assert found.percentile(0.51) == pytest.approx(1e10, rel=0.06)


def test_samples_of_a_year_ago_do_not_count_beside_one_of_today() -> None:
    found = filled([1e11] * 1000, NOW - 365 * HALF_LIFE_SECONDS)
    found.add(1e9, NOW)
    assert found.percentile(1) == pytest.approx(1e9, rel=0.06)


def test_after_a_clock_set_back_by_years_new_samples_count() -> None:
    found = filled([1e11] * 3, NOW + 1e9)
    for _ in range(30):
        found.add(1e9, NOW)
    assert found.percentile(0.5) == pytest.approx(1e9, rel=0.06)


def test_an_empty_histogram_has_no_percentile() -> None:
    assert Histogram(1, 10).percentile(0.9) is None


@pytest.mark.parametrize(
    "tree",
    [
        None,
        {},
        {"as_of": 1, "weights": {"-1": 1}},
        {"as_of": 1, "weights": {"1": -1}},
        {"as_of": 1, "weights": {"9999": 1}},
        {"as_of": 1, "weights": {"1": float("inf")}},
        {"as_of": float("nan"), "weights": {}},
        {"as_of": 1, "weights": {"x": 1}},
        {"as_of": 1, "weights": [1]},
    ],
)
def test_a_damaged_histogram_is_refused(tree: Any) -> None:
    with pytest.raises((ValueError, TypeError, KeyError, AttributeError)):
        Histogram(1, 10).load(tree)
