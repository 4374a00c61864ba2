"""Placement against a brute force over every possible choice."""

from __future__ import annotations

import itertools
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.rules import Rules

MACHINES = st.lists(st.sampled_from([4, 8, 16]), min_size=0, max_size=4).map(lambda m: gpus(*m))
CORES = st.sampled_from([0, 1, 30, 50, 70, 99, 100, 130, 150, 200, 250, 300])
MEMORY = st.none() | st.integers(1, 40).map(lambda size: size * GIB // 2)
ORDERS = st.sampled_from(["binpack", "spread"])


@st.composite
def situations(draw: Any) -> tuple[list[Gpu], list[GpuShare], Request, str]:
    """A machine, what is taken of it (never more than there is), and a request."""
    machine, taken = draw(MACHINES), []
    for gpu in machine:
        core, memory = 100, gpu.memory_bytes
        for part in draw(st.lists(st.tuples(st.integers(1, 100), st.integers(1, 16)), max_size=3)):
            if part[0] <= core and part[1] * GIB <= memory:
                taken.append(GpuShare(gpu.uuid, part[1] * GIB, part[0]))
                core, memory = core - part[0], memory - part[1] * GIB
    named = draw(st.lists(st.sampled_from(machine), unique=True, max_size=3)) if machine else []
    core = draw(CORES)
    names = tuple(draw(st.sampled_from([gpu.uuid, str(gpu.index)])) for gpu in named)
    if core == 0:
        names = names or ("all",)
    return machine, taken, Request.of(core, draw(MEMORY), names), draw(ORDERS)


def allowed_of(machine: list[Gpu], request: Request) -> list[Gpu]:
    if request.gpus in ((), ("all",)):
        return machine
    return [gpu for gpu in machine if {gpu.uuid, str(gpu.index)} & set(request.gpus)]


def part_of(gpu: Gpu, percent: int, request: Request) -> int:
    return request.memory_bytes or gpu.memory_bytes * percent // 100


def left_of(gpu: Gpu, taken: list[GpuShare]) -> tuple[int, int]:
    mine = [share for share in taken if share.uuid == gpu.uuid]
    return (
        100 - sum(share.core_percent for share in mine),
        gpu.memory_bytes - sum(share.memory_bytes for share in mine),
    )


def every_choice(machine: list[Gpu], taken: list[GpuShare], request: Request) -> list[Any]:
    """(whole GPUs, GPU of the fraction or None) of each choice that holds what is asked."""
    allowed = allowed_of(machine, request)
    whole, percent = divmod(request.core or 100 * len(allowed), 100)
    touched = {share.uuid for share in taken}
    found: list[Any] = []
    for wholes in itertools.combinations([g for g in allowed if g.uuid not in touched], whole):
        if not percent:
            if wholes and sum(g.memory_bytes for g in wholes) >= (request.memory_bytes or 0):
                found.append((wholes, None))
            continue
        for gpu in allowed:
            core, memory = left_of(gpu, taken)
            if gpu not in wholes and core >= percent and memory >= part_of(gpu, percent, request):
                found.append((wholes, gpu))
    return found


@given(situations())
def test_a_request_is_refused_only_if_no_choice_holds_it(situation: Any) -> None:
    machine, taken, request, order = situation
    choices = every_choice(machine, taken, request)
    answer = choose(machine, taken, request, Rules(order))
    assert isinstance(answer, Chosen if choices else Refused)


@given(situations())
def test_chosen_shares_equal_the_request_without_overfull_gpus(situation: Any) -> None:
    machine, taken, request, order = situation
    answer = choose(machine, taken, request, Rules(order))
    if isinstance(answer, Refused):
        return
    by_uuid = {gpu.uuid: gpu for gpu in machine}
    whole, percent = divmod(request.core or 100 * len(allowed_of(machine, request)), 100)
    wholes, parts = answer.shares[:whole], answer.shares[whole:]
    assert [(share.core_percent, share.memory_bytes) for share in wholes] == [
        (100, by_uuid[share.uuid].memory_bytes) for share in wholes
    ]
    assert [(share.core_percent, share.memory_bytes) for share in parts] == (
        [(percent, part_of(by_uuid[parts[0].uuid], percent, request))] if percent else []
    )
    assert len({share.uuid for share in answer.shares}) == len(answer.shares)
    assert not {share.uuid for share in wholes} & {share.uuid for share in taken}
    for gpu in machine:
        core, memory = left_of(gpu, [*taken, *answer.shares])
        assert core >= 0
        assert memory >= 0


@given(situations())
def test_a_fraction_takes_the_fullest_gpu_or_the_emptiest(situation: Any) -> None:
    machine, taken, request, order = situation
    answer = choose(machine, taken, request, Rules(order))
    possible = {gpu.uuid: gpu for _, gpu in every_choice(machine, taken, request) if gpu}
    if not possible:
        return
    assert isinstance(answer, Chosen)
    best = (min if order == "binpack" else max)(left_of(gpu, taken) for gpu in possible.values())
    assert left_of(possible[answer.shares[-1].uuid], taken) == best


@given(situations())
def test_the_same_question_gets_the_same_answer(situation: Any) -> None:
    machine, taken, request, order = situation
    first, second = (choose(machine, list(taken), request, Rules(order)) for _ in range(2))
    assert type(first) is type(second)
    if isinstance(first, Chosen) and isinstance(second, Chosen):
        assert first.shares == second.shares


@given(situations())
def test_a_refusal_of_a_fraction_names_a_free_share_that_is_really_free(situation: Any) -> None:
    machine, taken, request, order = situation
    answer = choose(machine, taken, request, Rules(order))
    if not isinstance(answer, Refused) or "largest free share" not in answer.reason:
        return
    uuid = answer.reason.partition(" on ")[2].partition(";")[0]
    core, memory = left_of(next(gpu for gpu in machine if gpu.uuid == uuid), taken)
    message = f"largest free share is {core} % and "
    assert answer.reason.startswith(message)
    number, unit = answer.reason[len(message) :].split()[:2]
    assert float(number) * (GIB if unit == "GiB" else 1 << 20) <= memory


def reason(machine: list[Gpu], taken: list[GpuShare], request: Request) -> str:
    answer = choose(machine, taken, request, Rules())
    assert isinstance(answer, Refused)
    return answer.reason


@pytest.mark.parametrize(
    ("machine", "taken", "request_", "expected"),
    [
        (
            gpus(16),
            [GpuShare("GPU-0", 12 * GIB, 30)],
            Request.of(30, 8 * GIB),
            "largest free share is 70 % and 4.0 GiB on GPU-0; 30 % and 8.0 GiB asked",
        ),
        (
            gpus(16, 16),
            [GpuShare("GPU-0", 1 * GIB, 90), GpuShare("GPU-1", 1 * GIB, 60)],
            Request.of(50),
            "largest free share is 40 % and 15.0 GiB on GPU-1; 50 % and 8.0 GiB asked",
        ),
        (
            gpus(16),
            [GpuShare("GPU-0", 16 * GIB - (5 << 20), 10)],
            Request.of(25),
            "largest free share is 90 % and 5.0 MiB on GPU-0; 25 % and 4.0 GiB asked",
        ),
        (
            gpus(16, 16),
            [GpuShare("GPU-1", GIB, 1)],
            Request.of(200),
            "1 of 2 GPUs are wholly free; 2 asked",
        ),
        (
            gpus(16),
            [],
            Request.of(150),
            "no GPU is left beside the whole ones; 50 % of another asked",
        ),
        (
            gpus(16),
            [],
            Request.of(100, 17 * GIB),
            "1 wholly free have at most 16.0 GiB; 17.0 GiB asked",
        ),
        (gpus(), [], Request.of(30), "0 of 0 GPUs are wholly free; 1 asked"),
        (gpus(), [], Request.of(0, None, ("all",)), "0 of 0 GPUs are wholly free; 1 asked"),
        (
            gpus(16, 8),
            [],
            Request.of(30, None, ("0", "GPU-9")),
            "no GPU 'GPU-9' here; there is 0 (GPU-0), 1 (GPU-1)",
        ),
        (gpus(), [], Request.of(30, None, ("0",)), "no GPU '0' here; there is none"),
    ],
)
def test_a_refusal_says_what_would_fit(
    machine: list[Gpu], taken: list[GpuShare], request_: Request, expected: str
) -> None:
    assert reason(machine, taken, request_) == expected


@pytest.mark.parametrize(
    ("machine", "taken", "request_", "shares"),
    [
        (gpus(16, 16), [], Request.of(150), [("GPU-0", 16, 100), ("GPU-1", 8, 50)]),
        (
            gpus(16, 16, 16),
            [],
            Request.of(250),
            [("GPU-0", 16, 100), ("GPU-1", 16, 100), ("GPU-2", 8, 50)],
        ),
        (
            gpus(16, 8),
            [],
            Request.of(150, 12 * GIB),  # the whole part must leave the GPU that holds the fraction
            [("GPU-1", 8, 100), ("GPU-0", 12, 50)],
        ),
        (gpus(8, 16), [], Request.of(100, 16 * GIB), [("GPU-1", 16, 100)]),
        (
            gpus(16, 16),
            [GpuShare("GPU-0", GIB, 10)],
            Request.of(150),
            [("GPU-1", 16, 100), ("GPU-0", 8, 50)],
        ),
        (gpus(16, 16), [], Request.of(30, None, ("1",)), [("GPU-1", 16 * 30 // 100, 30)]),
        (gpus(16, 8), [], Request.of(0, None, ("all",)), [("GPU-0", 16, 100), ("GPU-1", 8, 100)]),
    ],
)  # fmt: skip
def test_a_choice_is_as_expected(
    machine: list[Gpu], taken: list[GpuShare], request_: Request, shares: list[tuple[str, int, int]]
) -> None:
    answer = choose(machine, taken, request_, Rules())
    assert isinstance(answer, Chosen)
    found = [(s.uuid, s.memory_bytes // GIB, s.core_percent) for s in answer.shares]
    assert found == shares


NAMED = [Gpu(f"GPU-{uuid}", at, at, 16 * GIB, "Soft") for at, uuid in enumerate(("5f1c", "5f2c"))]
NAMED += [Gpu("MIG-77aa", 2, 2, 4 * GIB, "Soft", parent="GPU-9d00", mig=[1, 0, 0])]


@pytest.mark.parametrize(
    ("name", "uuid"),
    [
        ("GPU-5f2", "GPU-5f2c"),
        ("GPU-5f1c", "GPU-5f1c"),
        ("MIG-7", "MIG-77aa"),
        ("GPU-9", "MIG-77aa"),  # its only MIG device
    ],
)
def test_the_beginning_of_one_uuid_names_its_gpu(name: str, uuid: str) -> None:
    answer = choose(NAMED, [], Request.of(30, GIB, (name,)), Rules())
    assert isinstance(answer, Chosen)
    assert [share.uuid for share in answer.shares] == [uuid]


def test_uuid_that_begins_another_one_names_its_own_gpu() -> None:
    answer = choose(gpus(*[16] * 11), [], Request.of(30, GIB, ("GPU-1",)), Rules())
    assert isinstance(answer, Chosen)
    assert [share.uuid for share in answer.shares] == ["GPU-1"]


def test_beginning_of_several_uuids_is_refused_with_the_gpus_that_it_may_name() -> None:
    answer = choose(NAMED, [], Request.of(30, GIB, ("GPU-5f",)), Rules())
    assert isinstance(answer, Refused)
    assert f"{answer.reason}; {answer.hint}" == (
        "'GPU-5f' begins the UUIDs of 2 GPUs: 0 (GPU-5f1c), 1 (GPU-5f2c); "
        "name one by index, or by more of its UUID"
    )


@pytest.mark.parametrize("name", ["GPU-", "5f1c", "GPU-5f3", "GPU-5F1C"])
def test_a_text_that_begins_no_uuid_names_no_gpu(name: str) -> None:
    assert reason(NAMED, [], Request.of(30, GIB, (name,))).startswith(f"no GPU '{name}' here;")


def test_requests_placement_overrides_the_setting() -> None:
    taken = [GpuShare("GPU-0", GIB, 10)]
    for own, setting, uuid in [("spread", "binpack", "GPU-1"), ("binpack", "spread", "GPU-0")]:
        answer = choose(gpus(16, 16), taken, Request.of(30, placement=own), Rules(setting))
        assert isinstance(answer, Chosen)
        assert [share.uuid for share in answer.shares] == [uuid]
