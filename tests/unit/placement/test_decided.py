"""A decided share is placed exactly as decided and requested, or refused."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.policies import Terms
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.rules import Rules

NODE = gpus(16, 16, 16, 16)
TAKEN = st.lists(
    st.builds(
        GpuShare, st.sampled_from([gpu.uuid for gpu in NODE]), st.just(GIB), st.integers(1, 25)
    ),
    max_size=4,
)
REQUESTS = st.builds(
    Request.of,
    st.sampled_from([1, 30, 99, 100, 130, 150, 200, 299, 400]),
    st.sampled_from([None, GIB, 8 * GIB]),
)


def as_decided(decided, taken, request):
    return choose(NODE, taken, request, Rules(), decided=decided)


@given(TAKEN, REQUESTS, st.sampled_from(["binpack", "spread"]))
def test_what_the_scheduler_chose_by_the_nodes_own_rules_is_what_the_node_gives(
    taken, request, order
):
    chosen = choose(NODE, taken, request, Rules(order))
    if isinstance(chosen, Chosen):
        decided = [GpuShare(s.uuid, s.memory_bytes, s.core_percent) for s in chosen.shares]
        placed = as_decided(decided[::-1], taken, request)
        assert isinstance(placed, Chosen)
        assert sorted(map(repr, placed.shares)) == sorted(map(repr, chosen.shares))


@given(TAKEN, REQUESTS, st.permutations([gpu.uuid for gpu in NODE]))
def test_any_decision_is_followed_exactly_or_refused(taken, request, order):
    whole, fraction = divmod(request.core, 100)
    percents = [100] * whole + ([fraction] if fraction else [])
    memory = request.memory_bytes or GIB
    decided = [GpuShare(uuid, memory, core) for uuid, core in zip(order, percents)]
    placed = as_decided(decided, taken, request)
    if isinstance(placed, Chosen):
        where = {share.uuid: share.core_percent for share in placed.shares}
        assert where == {share.uuid: share.core_percent for share in decided}
        for share in placed.shares:
            beside = sum(other.core_percent for other in taken if other.uuid == share.uuid)
            assert share.core_percent + beside <= 100


def test_policy_and_memory_come_from_the_request_and_an_index_names_a_gpu():
    terms = Terms("weighted", weight=300)
    placed = as_decided([GpuShare("2", 7, 30)], [], Request.of(30, None, terms=terms))
    assert isinstance(placed, Chosen)
    assert placed.shares == [
        GpuShare("GPU-2", 16 * GIB * 30 // 100, 30, "weighted", 100, 300),
    ]


@pytest.mark.parametrize(
    ("decided", "request_", "reason"),
    [
        ([("GPU-9", 30)], Request.of(30), "GPU 'GPU-9' was decided and is not here"),
        ([("GPU-1", 31)], Request.of(30), "31 % was decided; 30 % is asked"),
        ([("GPU-1", 100)], Request.of(200), "100 % was decided; 200 % is asked"),
        (
            [("GPU-1", 50), ("GPU-2", 50)],
            Request.of(100),
            "50 + 50 % was decided; 100 % is asked",
        ),
        (
            [("GPU-1", 100), ("1", 50)],
            Request.of(150),
            "GPU-1 was decided twice for one container",
        ),
        (
            [("GPU-1", 100)],
            Request.of(100),
            "GPU-1 was decided; 0 of 1 GPUs are wholly free; 1 asked",
        ),
        (
            [("GPU-1", 30)],
            Request.of(30, GIB),
            f"{4 * GIB} bytes were decided; {GIB} are asked",
        ),
        (
            [("GPU-1", 90)],
            Request.of(90, 4 * GIB),
            "GPU-1 was decided; largest free share is 80 % and 15.0 GiB on GPU-1; "
            "90 % and 4.0 GiB asked",
        ),
    ],
)
def test_what_cannot_be_is_refused_with_its_reason(decided, request_, reason):
    taken = [GpuShare("GPU-1", GIB, 20)]
    shares = [GpuShare(uuid, 4 * GIB, core) for uuid, core in decided]
    answer = as_decided(shares, taken, request_)
    assert isinstance(answer, Refused)
    assert answer.reason == reason
