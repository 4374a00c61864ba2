"""Placement on GPUs with different distances, where some are unhealthy."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from support.scheduler.gpu_topologies import islands, matrices
from unit.placement.test_placement import left_of
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.rules import Rules

EIGHT = gpus(*[16] * 8)
ORDERS = st.sampled_from(["binpack", "spread", "topology"])
CORES = st.sampled_from([1, 30, 50, 100, 130, 150, 200, 250, 300, 400, 550, 800])


class Situation:
    """A machine, what is taken of it, its distances, and what is asked."""

    def __init__(
        self,
        machine: list[Gpu],
        taken: list[GpuShare],
        far: list[list[int]],
        core: int,
        order: str,
        sick: list[str],
    ) -> None:
        self.machine, self.taken, self.far = machine, taken, far
        self.core, self.order = core, order
        self.sick = dict.fromkeys(sick, "Xid 79")

    def __repr__(self) -> str:
        return repr(self.__dict__)

    def answer(self) -> Chosen | Refused:
        asked = Request.of(self.core)
        return choose(self.machine, self.taken, asked, Rules(self.order), self.far, self.sick)


@st.composite
def situations(draw: Any) -> Situation:
    count = draw(st.integers(1, 8))
    machine = gpus(*[16] * count)
    taken = [
        GpuShare(gpu.uuid, 4 * GIB, draw(st.sampled_from([10, 50, 100])))
        for gpu in machine
        if draw(st.booleans())
    ]
    sick = [gpu.uuid for gpu in machine if draw(st.integers(0, 5)) == 0]
    return Situation(machine, taken, draw(matrices(count)), draw(CORES), draw(ORDERS), sick)


def every_choice(asked: Situation) -> list[tuple[int, tuple[int, ...], int | None]]:
    """(distance, whole GPUs, GPU of the fraction) of each choice that holds what is asked."""
    whole, percent = divmod(asked.core, 100)
    left = [left_of(gpu, asked.taken) for gpu in asked.machine]
    fit = [at for at, gpu in enumerate(asked.machine) if gpu.uuid not in asked.sick]
    found: list[tuple[int, tuple[int, ...], int | None]] = []
    for wholes in itertools.combinations([at for at in fit if left[at][0] == 100], whole):
        parts: list[int | None] = [None]
        if percent:
            memory = 16 * GIB * percent // 100
            parts = [
                at
                for at in fit
                if at not in wholes and left[at][0] >= percent and left[at][1] >= memory
            ]
        for part in parts:
            some = wholes if part is None else (*wholes, part)
            far = sum(asked.far[a][b] for a, b in itertools.combinations(some, 2))
            found.append((far, wholes, part))
    return found


@given(situations())
def test_chosen_gpus_are_nearest_fit_and_not_overfull(
    asked: Situation,
) -> None:
    choices, answer = every_choice(asked), asked.answer()
    if isinstance(answer, Refused):
        assert choices == []
        return
    at = [int(share.uuid[4:]) for share in answer.shares]
    far = sum(asked.far[a][b] for a, b in itertools.combinations(at, 2))
    assert far == min(far for far, _, _ in choices)
    whole, percent = divmod(asked.core, 100)
    parts = [100] * whole + ([percent] if percent else [])
    assert [share.core_percent for share in answer.shares] == parts
    for gpu in asked.machine:
        core, memory = left_of(gpu, [*asked.taken, *answer.shares])
        assert core >= 0
        assert memory >= 0
    assert not {share.uuid for share in answer.shares} & set(asked.sick)
    # The same question has the same answer.
    again = asked.answer()
    assert isinstance(again, Chosen)
    assert again.shares == answer.shares


@given(situations())
def test_share_follows_the_placement_order_on_any_topology(asked: Situation) -> None:
    asked.core %= 100
    if not asked.core:
        return
    answer = asked.answer()
    if isinstance(answer, Refused):
        return
    left = {gpu.uuid: left_of(gpu, asked.taken)[0] for gpu in asked.machine}
    possible = [
        left[asked.machine[part].uuid] for _, _, part in every_choice(asked) if part is not None
    ]
    best = max(possible) if asked.order == "spread" else min(possible)
    assert left[answer.shares[0].uuid] == best


def taken_by(*positions: int, percent: int = 100) -> list[GpuShare]:
    return [GpuShare(f"GPU-{at}", GIB, percent) for at in positions]


@pytest.mark.parametrize(
    ("taken", "core", "order", "expected"),
    [
        ([], 400, "binpack", "0 1 2 3"),
        (taken_by(1), 400, "spread", "4 5 6 7"),
        (taken_by(1, 6), 400, "binpack", "0 2 3 7"),
        ([], 100, "binpack", "0"),
        (taken_by(5), 100, "binpack", "4"),
        (taken_by(5, 4), 100, "binpack", "6"),
        (taken_by(5), 200, "binpack", "6 7"),
        ([], 150, "binpack", "6 7"),
        (taken_by(2, percent=50), 150, "binpack", "3 2"),
        (taken_by(2, percent=60), 150, "binpack", "6 7"),
        (taken_by(5), 30, "topology", "4"),
        (taken_by(5), 30, "binpack", "0"),
        (taken_by(5, percent=70), 30, "topology", "5"),
        (taken_by(5, percent=80), 30, "topology", "4"),
        (taken_by(0, 5, percent=10), 30, "topology", "0"),
    ],
    ids=[
        "an island",
        "the island that is whole",
        "where none is",
        "the first of equals",
        "what is alone already",
        "a broken island first",
        "a pair of a broken island",
        "one and a half are a pair",
        "half of one in use, and its pair",
        "which must fit",
        "a share begins what is alone",
        "not by binpack",
        "but first fills up",
        "as far as it fits",
        "and goes by index",
    ],
)
def test_linked_gpus_stay_together(
    taken: list[GpuShare], core: int, order: str, expected: str
) -> None:
    answer = choose(EIGHT, taken, Request.of(core), Rules(order), islands())
    assert isinstance(answer, Chosen)
    assert " ".join(share.uuid[4:] for share in answer.shares) == expected


def test_a_request_that_names_gpus_gets_the_nearest_of_them() -> None:
    named = Request.of(200, gpus=("7", "GPU-1", "3", "4"))
    answer = choose(EIGHT, [], named, Rules(), islands())
    assert isinstance(answer, Chosen)
    # All pairs are one link apart, so the order of the names decides.
    assert [share.uuid for share in answer.shares] == ["GPU-7", "GPU-4"]


def test_where_the_nearest_have_too_little_memory_the_largest_are_taken() -> None:
    machine = gpus(8, 8, 24, 24)
    far = [[0, 35, 600, 600], [35, 0, 600, 600], [600, 600, 0, 500], [600, 600, 500, 0]]
    for memory, expected in [(None, ["GPU-0", "GPU-1"]), (20 * GIB, ["GPU-2", "GPU-3"])]:
        answer = choose(machine, [], Request.of(200, memory), Rules(), far)
        assert isinstance(answer, Chosen)
        assert [share.uuid for share in answer.shares] == expected


@pytest.mark.parametrize(
    ("request_", "taken", "reason"),
    [
        (Request.of(30, gpus=("1",)), [], "GPU-1 is unhealthy: Xid 79"),
        (
            Request.of(200),
            [],
            "1 of 2 GPUs are wholly free; 2 asked (GPU-1 is unhealthy: Xid 79)",
        ),
        (
            Request.of(0, gpus=("all",)),
            [],
            "1 of 2 GPUs are wholly free; 2 asked (GPU-1 is unhealthy: Xid 79)",
        ),
        (
            Request.of(50),
            taken_by(0, percent=70),
            "largest free share is 30 % and 15.0 GiB on GPU-0; 50 % and 8.0 GiB asked "
            "(GPU-1 is unhealthy: Xid 79)",
        ),
        (Request.of(50, gpus=("0",)), taken_by(0, percent=70), None),
    ],
    ids=["the only one named", "one too few", "all", "no room beside it", "not asked for"],
)
def test_a_refusal_names_the_unhealthy_gpus_that_might_have_served(
    request_: Request, taken: list[GpuShare], reason: str | None
) -> None:
    sick = {"GPU-1": "Xid 79"}
    answer = choose(gpus(16, 16), taken, request_, Rules(), unhealthy=sick)
    assert isinstance(answer, Refused)
    assert answer.reason == reason or (reason is None and "unhealthy" not in answer.reason)
    healthy = choose(gpus(16, 16), [], Request.of(100), Rules(), unhealthy=sick)
    assert isinstance(healthy, Chosen)
    assert [share.uuid for share in healthy.shares] == ["GPU-0"]
