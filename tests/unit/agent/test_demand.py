"""A container's demand, derived from samples of its usage page; false pages included."""

from __future__ import annotations

from typing import NamedTuple

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vcuda_oci.pages import layout
from vcuda_plugin.agent.compute.demand import DEMAND_FROM, DEMAND_SIZE, Demand, Reading, reading

MS = 1_000_000
LOOK = 50 * MS
POINT = 10_000
START = 10**12
EVERY_GPU = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE
# The last that is read of the last GPU: long_until_ns.
LAST_WORD_ENDS = EVERY_GPU - layout.USAGE_GPU_SIZE + DEMAND_FROM + DEMAND_SIZE


class Sign(NamedTuple):
    """The result of one poll."""

    wants: bool
    hides_work: bool
    used_ppm: int


IDLE = Sign(False, False, 0)


def seen(demand: Demand, new: Reading | None) -> Sign:
    demand.see(new)
    return Sign(demand.wants, demand.hides_work, demand.used_ppm)


class Container:
    """Polled every 50 ms; `passes` adds use and waiting, in ms, and polls."""

    def __init__(self) -> None:
        self.demand = Demand()
        self.at_ns, self.busy_ns, self.throttled_ns, self.long_until_ns = START, 0, 0, 0
        self.demand.see((START, 0, 0, 0))

    def passes(self, used: float = 0, waited: float = 0, long: int | None = None) -> Sign:
        """long: a kernel was launched that takes so many ms from now."""
        self.at_ns += LOOK
        self.busy_ns += int(used * MS)
        self.throttled_ns += int(waited * MS)
        if long is not None:
            self.long_until_ns = self.at_ns + long * MS
        return seen(self.demand, (self.at_ns, self.busy_ns, self.throttled_ns, self.long_until_ns))

    def judged(self, others: int = 0, rate: int = 100, hides: bool = False) -> tuple[bool, int]:
        """After the last look, with so many percent used by others, at so many percent of rate:
        wants, percent used. hides: one of the others hides work."""
        left = (100 - others) * POINT - self.demand.used_ppm
        wants, used = self.demand.judge(left, hides, rate * POINT, self.at_ns)
        return wants, used // POINT


def settled(container: Container, used: float) -> Sign:
    """The result after a while of `used` ms in every 50."""
    signs = [container.passes(used=used) for _ in range(8)]
    return signs[-1]


def using_25_of_50(container: Container, looks: int) -> list[tuple[bool, int]]:
    """The judgement at each poll while it uses half of the GPU and others the other half."""
    answers = []
    for _ in range(looks):
        container.passes(used=25)
        answers.append(container.judged(others=50, rate=70))
    return answers


def test_an_idle_container_wants_nothing() -> None:
    assert Container().passes() == IDLE


def test_a_container_that_waits_for_its_share_wants_more() -> None:
    container = Container()
    settled(container, 15)
    sign = container.passes(used=15, waited=0.1)
    assert sign == Sign(True, False, 30 * POINT)
    assert container.judged(others=70, rate=30) == (True, 30)


def test_a_wait_that_is_counted_each_250_ms_goes_on_between() -> None:
    container = Container()
    settled(container, 15)
    container.passes(waited=250)
    assert [container.passes().wants for _ in range(4)] == [True] * 4
    assert container.passes(waited=250).wants
    assert [container.passes().wants for _ in range(6)] == [True] * 5 + [False]


def test_a_container_that_begins_wants_more_at_once_whatever_its_use_before() -> None:
    container = Container()
    for _ in range(20):
        container.passes()
    assert container.passes(used=10).wants
    assert container.passes(used=25) == Sign(False, False, 50 * POINT)


def test_a_container_that_ends_is_idle_within_a_few_samples() -> None:
    container = Container()
    settled(container, 40)
    assert [container.passes().used_ppm // POINT for _ in range(4)] == [60, 40, 20, 0]


def test_a_container_that_uses_clearly_less_than_it_could_is_content() -> None:
    container = Container()
    settled(container, 10)
    assert container.judged(others=30, rate=70) == (False, 20)


def test_a_container_that_uses_all_that_others_leave_may_want_more() -> None:
    container = Container()
    settled(container, 25)
    assert container.judged(others=50, rate=70) == (True, 50)


def test_satisfied_container_retains_its_estimate_briefly_on_a_full_gpu() -> None:
    container = Container()
    settled(container, 25)
    assert container.judged(others=0, rate=70) == (False, 50)
    answers = using_25_of_50(container, 30)
    # A second, and then it is tried.
    assert answers == [(False, 50)] * 19 + [(True, 50)] * 11
    # The trial grants its guarantee; it uses no more, so its estimate is retained for longer.
    container.passes(used=25)
    assert container.judged(others=30, rate=70) == (False, 50)
    answers = using_25_of_50(container, 60)
    assert answers == [(False, 50)] * 39 + [(True, 50)] * 21


def test_a_container_that_uses_more_than_its_estimate_gets_a_new_estimate() -> None:
    container = Container()
    settled(container, 10)
    assert container.judged(others=30, rate=70) == (False, 20)
    settled(container, 25)
    assert container.judged(others=50, rate=70) == (True, 50)


def test_a_container_slowed_by_others_still_counts_as_wanting_as_much() -> None:
    container = Container()
    settled(container, 25)
    assert container.judged(others=0, rate=70) == (False, 50)
    settled(container, 20)
    assert container.judged(others=60, rate=70) == (False, 50)


def test_a_long_kernel_counts_while_it_runs_and_not_after() -> None:
    container = Container()
    container.passes()
    launched = container.passes(long=300)
    running = [container.passes() for _ in range(10)]
    assert {sign.hides_work for sign in [launched, *running]} == {True}
    assert container.judged() == (True, 0)
    ended = container.passes(used=300)
    assert (ended.hides_work, ended.used_ppm) == (False, 0)
    assert container.passes() == IDLE


def test_a_long_kernel_that_was_killed_is_forgotten() -> None:
    container = Container()
    container.passes(long=300)
    signs = [container.passes() for _ in range(60)]
    assert signs[-1] == IDLE


def test_beside_a_long_kernel_no_container_counts_as_having_had_room() -> None:
    container = Container()
    settled(container, 10)
    assert container.judged(rate=70, hides=True) == (True, 20)


def told_by(page: bytes) -> bytes:
    return page[layout.USAGE_HEAD_SIZE + DEMAND_FROM :]


def page_of(**fields: int) -> bytes:
    """A usage page with the same figures for every GPU."""
    page = bytearray(layout.empty_usage_page().ljust(EVERY_GPU, b"\0"))
    for name, at, size in layout.offsets():
        table, _, field = name.partition(".")
        if table == "usage_gpu" and field in fields:
            for gpu in range(layout.MAX_GPUS):
                start = layout.USAGE_HEAD_SIZE + gpu * layout.USAGE_GPU_SIZE + at
                page[start : start + size] = fields[field].to_bytes(size, "little")
    return bytes(page)


@pytest.mark.parametrize("gpu", [0, 15])
def test_a_reading_is_what_the_page_says(gpu: int) -> None:
    page = page_of(busy_ns=1, throttled_ns=2, long_until_ns=3)
    assert reading(told_by(page), gpu, 7) == (7, 1, 2, 3)


@pytest.mark.parametrize("size", [0, 1, LAST_WORD_ENDS - 1])
def test_a_truncated_page_has_no_figures(size: int) -> None:
    page = page_of(busy_ns=1)[:size]
    assert reading(told_by(page), layout.MAX_GPUS - 1, 7) is None
    container = Container()
    settled(container, 40)
    assert seen(container.demand, None) == IDLE
    # The next complete page counts as a first sample, of a container that may be busy.
    assert container.passes(used=40) == Sign(True, False, 0)


WORD = st.integers(0, 2**64 - 1)
HOSTILE = st.fixed_dictionaries(
    {"busy_ns": WORD, "throttled_ns": WORD, "long_until_ns": WORD, "balance_ns": WORD}
)


@given(st.lists(HOSTILE, max_size=8), st.integers(0, 15))
def test_any_page_content_affects_only_its_own_containers_demand(
    lies: list[dict[str, int]], gpu: int
) -> None:
    demand, now = Demand(), START
    for lie in lies:
        now += LOOK
        demand.see(reading(told_by(page_of(**lie)), gpu, now))
        wants, used = demand.judge(1_000_000 - demand.used_ppm, False, 300_000, now)
        assert wants in (True, False)
        assert 0 <= used <= 1_000_000
