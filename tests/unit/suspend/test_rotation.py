"""Which containers give way on a GPU that cannot hold all of its containers."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_hook.suspend import wait_bound
from vcuda_hook.suspend.wait_bound import LEAST_QUANTUM_SECONDS
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.suspend.rotation import (
    IDLE_SECONDS,
    Resident,
    Step,
    Waiting,
    next_step,
)

GPU, BOTH = gpus(16), gpus(16, 16)
# Memory that is promised twice is there once.
RULES = Rules(overcommit=2, rotates=True)


def quantum(one: Resident) -> float:
    return wait_bound.quantum(one.shares[0].memory_bytes, one.swap)


def need(gib: int, core: int = 30, gpu: str = "GPU-0") -> list[GpuShare]:
    return [GpuShare(gpu, gib * GIB, core)]


def resident(id: str, gib: int, since: float = 0, idle: float = 0, **more: Any) -> Resident:
    more = {"rotates": True, "swap": 1.0, **more}
    return Resident(id, need(gib), since, idle, **more)


def test_container_with_room_is_resumed_at_once() -> None:
    assert next_step(5, GPU, [resident("a", 8)], [Waiting("b", need(8), 4)], RULES) == Step(
        (), "b", 5
    )


def test_working_container_keeps_the_gpu_for_its_quantum() -> None:
    step = next_step(5, GPU, [resident("a", 12, since=2)], [Waiting("b", need(12), 4)], RULES)
    assert step == Step(("a",), "b", 2 + 12.0)


def test_fixed_quantum_replaces_the_measured_one() -> None:
    step = next_step(
        5, GPU, [resident("a", 12, since=2)], [Waiting("b", need(12), 4)], RULES, fixed=30
    )
    assert step == Step(("a",), "b", 32)


def test_idle_container_gives_way_before_one_at_work() -> None:
    both = [resident("busy", 8, since=0), resident("idle", 8, since=4, idle=IDLE_SECONDS)]
    assert next_step(100, GPU, both, [Waiting("b", need(8), 4)], RULES) == Step(("busy",), "b", 100)
    assert next_step(5, GPU, both, [Waiting("b", need(8), 4)], RULES) == Step(("idle",), "b", 5)


def test_short_swap_makes_an_idle_container_give_way_sooner() -> None:
    waits = [Waiting("b", need(12), 4)]
    there = resident("a", 12, since=4, idle=0.5, swap=0.5)
    assert next_step(5, GPU, [there], waits, RULES) == Step(("a",), "b", 5)
    longer = there._replace(swap=0.6)
    assert next_step(5, GPU, [longer], waits, RULES) == Step(("a",), "b", 4 + quantum(longer))
    hardly = there._replace(swap=0.01, idle=0.1)
    assert next_step(4.5, GPU, [hardly], waits, RULES) == Step(
        ("a",), "b", 4 + LEAST_QUANTUM_SECONDS
    )


def test_container_that_does_not_rotate_is_never_suspended_for_others() -> None:
    fixed = resident("a", 12, rotates=False)
    assert next_step(1e9, GPU, [fixed], [Waiting("b", need(12), 4)], RULES) is None


def test_compute_that_is_lacking_counts_as_memory_does() -> None:
    full = [Resident("a", need(1, core=80), 0, 0, rotates=True, swap=1)]
    assert next_step(50, GPU, full, [Waiting("b", need(1, core=30), 4)], RULES) == Step(
        ("a",), "b", 50
    )


def test_no_container_is_suspended_if_a_later_one_gives_enough_room() -> None:
    both = [resident("small", 2, since=0), resident("large", 12, since=1)]
    assert next_step(100, GPU, both, [Waiting("b", need(13), 4)], RULES) == Step(
        ("large",), "b", 100
    )


def test_share_of_two_gpus_gets_room_on_both() -> None:
    there = [resident("a", 12), Resident("c", need(12, gpu="GPU-1"), 0, 0, rotates=True, swap=1)]
    wanted = [*need(12), *need(12, gpu="GPU-1")]
    assert next_step(50, BOTH, there, [Waiting("b", wanted, 4)], RULES) == Step(("a", "c"), "b", 50)


def test_container_that_keeps_its_promise_comes_before_those_that_rotate() -> None:
    """One that rotates may wait for ever beside a large one that does not; it holds up no other."""
    there = [resident("works", 8, rotates=False), resident("borrows", 6)]
    waits = [Waiting("large", need(12), 1), Waiting("sleeper", need(8), 4, rotates=False)]
    assert next_step(50, GPU, there, waits, RULES) == Step(("borrows",), "sleeper", 50)
    assert next_step(50, GPU, there, waits[:1], RULES) is None
    elsewhere = [*waits[:1], Waiting("other", need(8, gpu="GPU-1"), 4)]
    assert next_step(50, BOTH, there, elsewhere, RULES) == Step((), "other", 50)


def test_gpu_that_has_gone_makes_its_container_wait_and_no_other_leave() -> None:
    assert next_step(50, [], [resident("a", 12)], [Waiting("b", need(12), 4)], RULES) is None


@pytest.mark.parametrize("swap", [0.2, 1.0, 8.0])
def test_swaps_with_a_fifth_beside_the_copies_take_no_more_than_a_tenth(swap: float) -> None:
    kept = quantum(resident("a", 8, swap=swap))
    assert swap * 1.2 / (swap * 1.2 + kept) <= 0.1


SIZES = st.lists(st.integers(4, 16), min_size=2, max_size=6)


@given(SIZES, st.floats(0.1, 4))
def test_no_container_starves_and_memory_is_never_exceeded(sizes: list[int], swap: float) -> None:
    """All are always at work: none waits for more than one quantum and swap of each other."""
    now = 0.0
    there: list[Resident] = []
    wait = [Waiting(str(at), need(size, core=10), 0.0) for at, size in enumerate(sizes)]
    longest = 0.0
    for _ in range(12 * len(sizes)):
        step = next_step(now, GPU, there, wait, RULES)
        if step is None:
            break
        now = max(now, step.at)
        gone = [one for one in there if one.id in step.victims]
        there = [one for one in there if one not in gone]
        now += swap
        wait += [Waiting(one.id, one.shares, now) for one in gone]
        (mine,) = [one for one in wait if one.id == step.resume]
        wait.remove(mine)
        longest = max(longest, now - mine.asked)
        there.append(Resident(mine.id, mine.shares, now, 0, rotates=True, swap=swap))
        assert sum(one.shares[0].memory_bytes for one in there) <= 16 * GIB
    assert bool(wait) == (sum(sizes) > 16)
    assert longest <= len(sizes) * (quantum(resident("a", 8, swap=swap)) + swap)
