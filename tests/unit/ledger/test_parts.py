"""Several parts are placed on different GPUs, by the scheduler and by the node."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Amounts
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.policies import Terms
from vcuda_oci.model.request import Part, Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.rules import Rules

NODE = gpus(16, 16, 32)
CORES = st.sampled_from([1, 30, 60, 100, 200])
PARTS = st.lists(
    st.builds(Part, CORES, st.sampled_from([None, GIB, 20 * GIB]), st.none())
    | st.builds(Part, CORES, st.none(), st.sampled_from([50, 100])),
    min_size=1,
    max_size=3,
)
TAKEN = st.lists(
    st.builds(
        GpuShare, st.sampled_from([gpu.uuid for gpu in NODE]), st.just(GIB), st.integers(1, 25)
    ),
    max_size=4,
)


@given(TAKEN, PARTS, st.sampled_from(["binpack", "spread", "topology"]))
def test_each_part_gets_another_gpu_and_the_node_gives_what_the_scheduler_placed(
    taken: list[GpuShare], asked: list[Part], order: str
) -> None:
    placed = choose(NODE, taken, Request(asked), Rules(order))
    if isinstance(placed, Refused):
        return
    shares = placed.shares
    sizes = [(part, core) for part in asked for core in part.sizes]
    assert len({share.uuid for share in shares}) == len(shares)
    assert [share.core_percent for share in shares] == [core for _, core in sizes]
    for share, (part, core) in zip(shares, sizes):
        gpu = next(gpu for gpu in NODE if gpu.uuid == share.uuid)
        assert share.memory_bytes == part.memory_of(core, gpu.memory_bytes)
    given = choose(NODE, taken, Request(asked), Rules(order), decided=shares)
    assert isinstance(given, Chosen) and given.shares == shares


def test_a_decision_of_other_amounts_or_of_an_absent_gpu_is_refused() -> None:
    request = Request([Part(30, GIB)] * 2, terms=Terms("elastic", 80))

    def reason(*shares: GpuShare) -> str:
        answer = choose(NODE, [], request, Rules(), decided=shares)
        return answer.reason if isinstance(answer, Refused) else ""

    right = GpuShare("GPU-0", GIB, 30)
    assert reason(right) == "30 % was decided; 30 + 30 % is asked"
    assert reason(right, right) == "GPU-0 was decided twice for one container"
    assert reason(right, GpuShare("GPU-9", GIB, 30)) == "GPU 'GPU-9' was decided and is not here"
    more = GpuShare("GPU-1", 2 * GIB, 30)
    assert reason(right, more) == f"{2 * GIB} bytes were decided; {GIB} are asked"
    answer = choose(NODE, [], request, Rules(), decided=[right, GpuShare("GPU-1", GIB, 30)])
    assert isinstance(answer, Chosen)
    assert [(share.policy, share.core_ceiling_percent) for share in answer.shares] == [
        ("elastic", 80)
    ] * 2


def test_a_percent_is_of_the_smallest_gpu_that_will_do() -> None:
    full = [GpuShare(gpu.uuid, 15 * GIB, 50) for gpu in NODE[:2]]
    (small,) = _shares(choose(NODE, [], Request([Part(1, None, 50)]), Rules()))
    (large,) = _shares(choose(NODE, full, Request([Part(1, None, 50)]), Rules()))
    assert (small.uuid, small.memory_bytes) == ("GPU-0", 8 * GIB)
    assert (large.uuid, large.memory_bytes) == ("GPU-2", 16 * GIB)


def test_no_gpu_is_given_where_only_their_number_is_known() -> None:
    answer = choose(NODE, [], Request(()), Rules())
    assert isinstance(answer, Refused)
    assert answer.reason == "the amount of each GPU is unknown"


def test_parts_of_several_are_never_of_mig_devices_of_which_cuda_uses_one() -> None:
    mig = [Gpu(f"MIG-{n}", 0, 0, 10 * GIB, "", parent="GPU-m", mig=[n, n + 1, 0]) for n in range(2)]
    one = choose(mig, [], Request([Part(30, GIB)]), Rules())
    assert [share.uuid for share in _shares(one)] == ["MIG-0"]
    several = choose(mig, [], Request([Part(30, GIB)] * 2), Rules())
    assert isinstance(several, Refused) and several.reason.startswith(
        "a program uses one MIG device"
    )


@given(PARTS, st.booleans())
def test_amounts_are_read_as_they_were_written(asked: list[Part], any_core: bool) -> None:
    written = {"main": Amounts(tuple(asked), any_core)}
    assert decision.parse(decision.Decision(amounts=written).dump()).amounts == written


def as_json(*part: Any) -> dict[str, Any]:
    return {"parts": [list(part)], "any_core": False}


@pytest.mark.parametrize(
    "tree",
    [
        [],
        {},
        {"parts": [], "any_core": False},
        {"parts": [[1, None, None]]},
        as_json(0, None, None),
        as_json(1, 2),
        as_json(None, None, None),
        as_json(True, None, None),
        as_json(1, 1 << 60, None),
        as_json(1, None, 101),
        as_json(9999, None, None),
    ],
)
def test_amounts_that_make_no_sense_are_none(tree: Any) -> None:
    with pytest.raises(ValueError):
        decision.parse_amounts(tree)


def _shares(answer: Chosen | Refused) -> list[GpuShare]:
    assert isinstance(answer, Chosen)
    return answer.shares
