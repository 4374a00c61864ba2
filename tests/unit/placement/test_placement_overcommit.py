"""Overcommitted memory: the factor limits the sum, and the GPU's size each share."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.free import free_on, no_room
from vcuda_oci.placement.rules import Rules

FACTORS = st.sampled_from([1, 1.1, 1.5, 2, 3.25])


@st.composite
def promises(draw: Any) -> list[GpuShare]:
    """What two GPUs hold, perhaps promised under a larger factor than now."""
    sizes = st.tuples(st.integers(0, 1), st.integers(1, 16), st.integers(1, 40), st.booleans())
    taken: list[GpuShare] = []
    for index, size, core, managed in draw(st.lists(sizes, max_size=6)):
        mine = [share for share in taken if share.uuid == f"GPU-{index}"]
        if sum(share.core_percent for share in mine) + core <= 100:
            taken.append(GpuShare(f"GPU-{index}", size * GIB, core, managed))
    return taken


@given(promises(), st.integers(1, 99), st.integers(1, 40), FACTORS)
def test_a_fraction_is_placed_wherever_core_promises_and_the_gpus_size_allow(
    taken: list[GpuShare], core: int, half_gib: int, factor: float
) -> None:
    machine, asked = gpus(16, 8), half_gib * GIB // 2
    fitting = {}
    for gpu in machine:
        mine = [share for share in taken if share.uuid == gpu.uuid]
        promised = sum(share.memory_bytes for share in mine) + asked
        fitting[gpu.uuid] = (
            sum(share.core_percent for share in mine) + core <= 100
            and promised <= gpu.memory_bytes * factor
            and asked <= gpu.memory_bytes
        )
    answer = choose(machine, taken, Request.of(core, asked), Rules(overcommit=factor))
    assert isinstance(answer, Chosen if any(fitting.values()) else Refused)
    if isinstance(answer, Chosen):
        (share,) = answer.shares
        assert fitting[share.uuid]
        assert share == GpuShare(share.uuid, asked, core, managed=factor > 1)


def test_a_third_container_gets_what_two_have_already_got() -> None:
    taken: list[GpuShare] = []
    for core in (30, 30, 30):
        answer = choose(gpus(16), taken, Request.of(core, 8 * GIB), Rules(overcommit=1.5))
        assert isinstance(answer, Chosen)
        taken += answer.shares
    assert taken == [GpuShare("GPU-0", 8 * GIB, 30, managed=True)] * 3
    assert free_on(gpus(16)[0], taken, Rules(overcommit=1.5)).memory == 0


@pytest.mark.parametrize(
    ("taken", "asked", "factor", "expected"),
    [
        ([], 17, 3, "100 % and 16.0 GiB on GPU-0; 10 % and 17.0 GiB asked"),
        ([12], 13, 1.5, "70 % and 12.0 GiB on GPU-0; 10 % and 13.0 GiB asked"),
        ([12], 5, 1, "70 % and 4.0 GiB on GPU-0; 10 % and 5.0 GiB asked"),
        ([12, 12], 1, 1, "40 % and 0.0 GiB on GPU-0; 10 % and 1.0 GiB asked"),
    ],
    ids=["more than a GPU has", "more than is left", "off", "set back to 1 while two hold more"],
)
def test_a_refusal_names_no_more_than_one_container_may_have(
    taken: list[int], asked: int, factor: float, expected: str
) -> None:
    held = [GpuShare("GPU-0", size * GIB, 30, managed=True) for size in taken]
    answer = choose(gpus(16), held, Request.of(10, asked * GIB), Rules(overcommit=factor))
    assert isinstance(answer, Refused)
    assert answer.reason == "largest free share is " + expected


def test_a_whole_gpu_is_shared_with_no_other_and_its_memory_stays_its_own() -> None:
    answer = choose(gpus(16, 16), [], Request.of(150), Rules(overcommit=1.5))
    assert isinstance(answer, Chosen)
    assert answer.shares == [
        GpuShare("GPU-0", 16 * GIB, 100),
        GpuShare("GPU-1", 8 * GIB, 50, managed=True),
    ]


def test_the_fullest_gpu_is_the_one_that_promised_most() -> None:
    taken = [
        GpuShare("GPU-0", 2 * GIB, 30, managed=True),
        GpuShare("GPU-1", 4 * GIB, 30, managed=True),
    ]
    for order, uuid in (("binpack", "GPU-1"), ("spread", "GPU-0")):
        answer = choose(gpus(16, 16), taken, Request.of(10, GIB), Rules(order, 2))
        assert isinstance(answer, Chosen)
        assert [share.uuid for share in answer.shares] == [uuid]


@given(promises(), st.integers(1, 100), st.integers(1, 40), FACTORS, st.booleans())
def test_a_share_comes_back_to_its_gpu_exactly_where_it_could_be_placed(
    taken: list[GpuShare], core: int, half_gib: int, factor: float, managed: bool
) -> None:
    share = GpuShare("GPU-1", half_gib * GIB // 2, core, managed=managed)
    mine = [other for other in taken if other.uuid == "GPU-1"]
    promised = sum(other.memory_bytes for other in mine) + share.memory_bytes
    fits = (
        sum(other.core_percent for other in mine) + core <= 100
        and promised <= 8 * GIB * (factor if managed else 1)
        and share.memory_bytes <= 8 * GIB
    )
    assert (no_room([share], gpus(16, 8), taken, Rules(overcommit=factor)) is None) == fits


def test_a_share_of_a_removed_gpu_cannot_come_back() -> None:
    refused = no_room([GpuShare("GPU-7", GIB, 10)], gpus(16), [], Rules())
    assert refused
    assert refused.reason == "GPU-7 is not in this machine"
