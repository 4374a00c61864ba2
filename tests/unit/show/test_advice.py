"""A share recommended from what a workload held, used and waited for."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB
from vcuda_hook.advice import demand, demands, recommend, workload
from vcuda_hook.advice.demand import DAY_SECONDS, Demand, Sample
from vcuda_hook.advice.recommend import Advice
from vcuda_hook.advice.workload import Workload
from vcuda_hook.names import container_names

NOW = 20_000 * DAY_SECONDS
STEP = 100.0
EACH_DAY = int(DAY_SECONDS / STEP)
JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=4) | st.dictionaries(st.text(), inner, max_size=4),
    max_leaves=12,
)


def days(of: Demand, count: float, *samples: Sample, begin: float = 0) -> Demand:
    """Add the samples in turn, one every STEP seconds. begin: in days after NOW."""
    for number in range(int(count * EACH_DAY)):
        at = NOW + begin * DAY_SECONDS + number * STEP
        of.add(samples[number % len(samples)], at)
    return of


def sample(held: float = 2.0, used: float = 20.0, waited: float = 0.0, **more: Any) -> Sample:
    """held: in GiB, of 8."""
    return Sample(**{"limit_bytes": 8 * GIB, "core_percent": 50, "held_bytes": int(held * GIB),
                     "used_percent": used, "waited_percent": waited, **more})  # fmt: skip


def advice(*samples: Sample, count: float = 9.5) -> Advice:
    return recommend.recommend(days(Demand(), count, *samples))


def test_a_steady_workload_gets_what_it_needs_and_a_margin() -> None:
    found = advice(sample())
    assert found.peak_bytes == 2 * GIB
    assert found.memory_bytes == 2.25 * GIB
    assert found.memory_bytes > 2 * GIB * 1.075
    assert found.core_percent == pytest.approx(20 * 1.15, abs=2)
    assert (found.memory_reason, found.core_reason) == ("demand", "demand")
    assert (found.days, found.confidence) == (10, "high")


@pytest.mark.parametrize("count", [0.01, 0.9])
def test_less_than_a_day_gives_no_recommendation(count: float) -> None:
    found = advice(sample(), count=count)
    assert (found.memory_bytes, found.memory_reason) == (None, "too-little-data")
    assert (found.core_percent, found.core_reason) == (None, "too-little-data")
    assert found.confidence == ""
    assert found.peak_bytes == 2 * GIB


def test_a_few_samples_over_two_days_are_too_few() -> None:
    of = Demand()
    for number in range(100):
        of.add(sample(), NOW + number * 2000)
    assert recommend.recommend(of).memory_reason == "too-little-data"


def test_few_days_get_a_larger_margin_than_many() -> None:
    one, nine = (advice(sample(4), count=count).memory_bytes for count in (1.1, 9))
    assert one is not None
    assert nine is not None
    assert one > nine > 4 * GIB * 1.05


def test_compute_that_was_waited_for_is_needed_as_well() -> None:
    without, waits = advice(sample(used=20)), advice(sample(used=20, waited=40))
    assert without.core_percent is not None
    assert waits.core_percent is not None
    assert waits.core_percent == pytest.approx(60 * 1.15, abs=4)
    assert waits.wanted_percent == pytest.approx(60, rel=0.06)
    assert waits.used_percent == pytest.approx(20, rel=0.06)


def test_idle_time_does_not_lower_the_compute_that_work_needs() -> None:
    busy = advice(sample(used=40))
    mostly_idle = advice(sample(used=40), *[sample(used=0)] * 30)
    assert mostly_idle.core_percent == busy.core_percent


def test_rare_bursts_get_compute_although_most_samples_are_low() -> None:
    found = advice(sample(used=60), *[sample(used=2)] * 30)
    assert found.core_percent == pytest.approx(60 * 1.15, abs=4)


def test_a_workload_that_never_used_its_gpu_gets_no_recommendation() -> None:
    found = advice(sample(held=0, used=0))
    assert (found.memory_bytes, found.memory_reason) == (None, "idle")
    assert (found.core_percent, found.core_reason) == (None, "idle")


def test_training_that_always_waits_takes_all_the_time_it_gets() -> None:
    found = advice(sample(used=50, waited=50))
    assert (found.core_percent, found.core_reason) == (None, "takes-all")


def test_a_weekly_peak_is_remembered_until_it_comes_again() -> None:
    of = days(Demand(), 1, sample(6))
    days(of, 6.9, sample(1), begin=1)
    kept = recommend.recommend(of).memory_bytes
    assert kept is not None
    assert kept > 6 * GIB * 1.05
    days(of, 2, sample(1), begin=8)
    after = recommend.recommend(of).memory_bytes
    assert after is not None
    assert after < 2 * GIB


def test_a_refusal_asks_for_a_fifth_more_at_once() -> None:
    of = days(Demand(), 3, sample(3), sample(2))
    before = recommend.recommend(of).memory_bytes
    of.add(sample(8, refused=2), NOW + 3 * DAY_SECONDS)
    found = recommend.recommend(of)
    assert before is not None
    assert before < 5 * GIB
    assert found.memory_bytes is not None
    assert found.memory_bytes >= 8 * GIB * 1.2
    assert found.memory_reason == "refused"


def test_a_framework_that_holds_one_part_of_two_limits_takes_all() -> None:
    of = days(Demand(), 1, sample(6))
    assert recommend.recommend(of).memory_reason == "too-little-data"
    days(of, 1, sample(6), begin=1)
    found = recommend.recommend(of)
    assert (found.memory_bytes, found.memory_reason) == (None, "may-take-all")
    days(of, 1, sample(9, limit_bytes=12 * GIB), begin=2)
    found = recommend.recommend(of)
    assert (found.memory_bytes, found.memory_reason) == (None, "takes-all")


def test_a_program_that_holds_the_same_bytes_of_two_limits_needs_them() -> None:
    of = days(Demand(), 2, sample(6))
    days(of, 1, sample(6, limit_bytes=7 * GIB), begin=2)
    assert recommend.recommend(of).memory_reason == "demand"


def test_many_small_changes_of_a_limit_keep_what_its_first_showed() -> None:
    of = days(Demand(), 1, sample(2))
    for number in range(12):
        limit = int((2.25 + number * 0.05) * GIB)
        days(of, 0.5, sample(2, limit_bytes=limit), begin=1 + number / 2)
    assert recommend.recommend(of).memory_reason == "demand"
    assert len(of.as_json()["fills"]) == 4


def test_a_program_that_becomes_one_that_takes_all_is_found_out() -> None:
    of, limit = days(Demand(), 3, sample(2)), 8 * GIB
    for number in range(12):
        held = 0.75 * limit / GIB
        days(of, 1, sample(held, limit_bytes=limit), begin=3 + number)
        limit = recommend.recommend(of).memory_bytes or limit
    assert recommend.recommend(of).memory_reason == "takes-all"
    assert limit >= 5 * GIB


def test_memory_that_goes_up_and_down_is_a_need_however_high() -> None:
    found = advice(sample(7.5), sample(5))
    assert found.memory_reason == "demand"


def test_a_start_that_loads_for_a_minute_hides_no_framework_that_takes_all() -> None:
    of = Demand()
    of.add(sample(0.5), NOW)
    of.add(sample(3), NOW + 1)
    days(of, 2, sample(7.2), begin=0.001)
    assert recommend.recommend(of).memory_reason == "may-take-all"


FIGURE = st.none() | st.floats(-10, 200)
SAMPLES = st.builds(
    Sample,
    st.integers(1, 1 << 40),
    st.integers(1, 100),
    st.none() | st.integers(0, 1 << 44),
    FIGURE,
    FIGURE,
    st.integers(0, 3),
    st.integers(1, 30),
)


@given(st.lists(st.tuples(SAMPLES, st.floats(0, 1e11)), max_size=60))
def test_any_samples_give_a_bounded_demand_that_survives_its_file(
    samples: list[tuple[Sample, float]],
) -> None:
    of = Demand()
    for each, now in samples:
        of.add(each, now)
    workloads = {Workload("Container", "", "box", "", "image"): of}
    text = demands.dump(workloads)
    assert len(text) < 20_000
    ((its, again),) = demands.parse(text).items()
    assert its.shown == "box"
    found = recommend.recommend(of)
    assert recommend.recommend(again) == found
    assert found.core_percent is None or 5 <= found.core_percent <= 100
    if found.memory_bytes is not None and found.peak_bytes is not None:
        assert found.memory_bytes % recommend.UNIT_BYTES == 0
        assert found.memory_bytes > found.peak_bytes


@given(st.lists(st.integers(1, 7 << 30), min_size=3, max_size=20))
def test_what_was_held_in_the_last_days_is_never_refused(peaks: list[int]) -> None:
    of = Demand()
    for day, peak in enumerate(peaks):
        for number in range(200):
            held = peak if number == 100 else peak // 3
            of.add(Sample(8 * GIB, 50, held, 10, 0), NOW + day * DAY_SECONDS + number * 300)
    found = recommend.recommend(of).memory_bytes
    assert found is not None
    assert found >= max(peaks[-demand.PEAK_DAYS :])


@given(JSON)
def test_no_other_file_is_taken_for_demands(tree: Any) -> None:
    for text in (json.dumps(tree), json.dumps({"version": 1, "workloads": [[["a"] * 5, tree]]})):
        with pytest.raises(ValueError, match=r".*"):
            demands.parse(text.encode())


def test_the_workload_seen_longest_ago_makes_room(monkeypatch: Any) -> None:
    monkeypatch.setattr(demands, "MOST_WORKLOADS", 2)
    of = {Workload("Container", "", name): Demand() for name in ("old", "new")}
    for at, each in enumerate(of.values()):
        each.add(sample(), NOW + at)
    demands.make_room(of)
    assert [each.name for each in of] == ["new"]


POD = {"namespace": "ml", "name": "train-5c-x", "container": "main"}


@pytest.mark.parametrize(
    ("pod", "owner", "shown", "kind"),
    [
        (POD, "Deployment/train", "ml/train/main", "Deployment"),
        (POD, "", "ml/train-5c-x/main", "Pod"),
        (None, "", "nb", "Container"),
    ],
)
def test_a_workload_is_the_owner_or_the_engines_name(
    pod: dict[str, str] | None, owner: str, shown: str, kind: str
) -> None:
    found = workload.of(pod, owner, "nb", "a/b:1")
    assert (found.shown, found.kind) == (shown, kind)
    assert {shown, found.name} <= {*container_names.forms_of_pod(found.shown)}
