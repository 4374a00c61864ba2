"""The device ids that the kubelet counts, and the preferred ones."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB
from support.scheduler.gpu_topologies import islands
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.kubelet import resources
from vcuda_plugin.agent.kubelet.resources import CORE, GPU, MEMORY, Device


def gpu(uuid: str, gib: float) -> Gpu:
    return Gpu(uuid, 0, 0, int(gib * GIB), "")


def ids(**numbers: range) -> list[str]:
    return [f"{uuid}.{number}" for uuid, found in numbers.items() for number in found]


def test_gpu_offers_a_hundred_cores_its_memory_units_and_one_whole_gpu() -> None:
    there = [gpu("a", 0.9), gpu("b", 0.5)]
    numa = {"b": 1}
    cores = resources.devices(CORE, there, {"a"}, numa, Rules())
    assert cores == [
        *(Device(f"a.{n}", False) for n in range(100)),
        *(Device(f"b.{n}", True, 1) for n in range(100)),
    ]
    # A unit that is not whole is no container's.
    memory = [Device(f"a.{n}") for n in range(3)] + [Device(f"b.{n}") for n in range(2)]
    assert resources.devices(MEMORY, there, (), numa, Rules()) == memory
    assert len(resources.devices(MEMORY, there, (), numa, Rules(overcommit=1.5))) == 5 + 3
    assert resources.devices(GPU, there, {"b"}, numa, Rules()) == [
        Device("a"),
        Device("b", False, 1),
    ]


def test_a_split_gpu_has_an_id_for_each_container_and_is_never_whole() -> None:
    there = [gpu("a", 16), gpu("b", 16)]
    split = resources.devices(GPU, there, {"b"}, {}, Rules(), 3)
    assert split == [Device(id, id[0] == "a") for id in ids(a=range(3), b=range(3))]
    given = [device.id for device in split]
    assert resources.preferred(GPU, given, [], 4, Rules(), there, None, 3) == given[:4]
    says = {
        (n, followed): resources.allocates_by(GPU, n, followed)
        for n in (1, 3)
        for followed in (False, True)
    }
    assert says == {(1, 0): "gpu", (1, 1): "vgpu", (3, 0): "vgpu", (3, 1): "vgpu"}
    assert [resources.allocates_by(kind, 3, True) for kind in (CORE, MEMORY)] == [CORE, MEMORY]
    found = resources.answer("vgpu", ["a.0", "a.2"], given, "/s")
    assert found.annotations == {"vcuda.io/request.vgpu": "2"}
    assert found.mount == ("/s/requests/vgpu/2", "/usr/local/vcuda/request/vgpu")


@pytest.mark.parametrize(
    ("kind", "available", "must", "size", "order", "expected"),
    [
        (CORE, ids(a=range(100), b=range(40)), [], 30, Rules(), ids(b=range(30))),
        (CORE, ids(a=range(100), b=range(40)), [], 30, "spread", ids(a=range(30))),
        (CORE, ids(a=range(100), b=range(40)), [], 41, Rules(), ids(a=range(41))),
        (CORE, ids(a=range(50), b=range(100)), [], 100, Rules(), ids(b=range(100))),
        (
            CORE,
            ids(a=range(60), b=range(100), c=range(100)),
            [],
            150,
            "binpack",
            ids(b=range(100), a=range(50)),
        ),
        (CORE, ids(a=range(20), b=range(30)), [], 40, Rules(), ids(b=range(30), a=range(10))),
        (CORE, ids(a=range(9, 12)), [], 2, Rules(), ["a.9", "a.10"]),
        (CORE, ids(a=range(5), b=range(50)), ["b.1", "b.7"], 3, Rules(), ["b.1", "b.7", "b.0"]),
        (CORE, ids(a=range(2)), [], 5, Rules(), ids(a=range(2))),
        (CORE, ["strange", "a.x", *ids(a=range(2))], [], 2, Rules(), ["a.0", "a.x"]),
        (MEMORY, ids(a=range(100), b=range(300)), [], 100, Rules(), ids(a=range(100))),
        (GPU, ["b", "a", "c"], ["c"], 2, Rules(), ["c", "a"]),
        (GPU, [], [], 1, Rules(), []),
    ],
    ids=[
        "the fullest that fits",
        "the emptiest",
        "the next that fits",
        "an untouched one",
        "one whole and the rest",
        "as few as can be",
        "in the order of numbers",
        "beside what it must have",
        "no more than there are",
        "ids never given",
        "memory from one GPU",
        "whole GPUs",
        "none",
    ],
)
def test_advice_is_as_placement_would_choose(
    kind: str, available: list[str], must: list[str], size: int, order: str, expected: list[str]
) -> None:
    there = [gpu(uuid, 16) for uuid in "abc"]
    assert resources.preferred(kind, available, must, size, Rules(order), there) == expected


@pytest.mark.parametrize(
    ("kind", "available", "size", "expected"),
    [
        (GPU, "1 2 3 4 5 6 7", 4, "4 5 6 7"),
        (GPU, "1 2 3 4 5 6 7", 2, "2 3"),
        (GPU, "1 2 3 4 5 6 7", 1, "1"),
        (GPU, "3 4", 2, "3 4"),
        (CORE, "1 2 3 4 5 6 7", 400, "4 5 6 7"),
        (CORE, "1 2 3 5 6 7", 150, "6 7"),
    ],
    ids=["an island", "a pair", "what is alone", "what there is", "of cores", "one and a half"],
)
def test_advice_on_whole_gpus_is_the_nearest_ones(
    kind: str, available: str, size: int, expected: str
) -> None:
    """By GetPreferredAllocation: the kubelet knows no links between GPUs."""
    there = [Gpu(str(number), number, number, 16 * GIB, "") for number in range(8)]
    ids = [
        id
        for number in available.split()
        for id in ([number] if kind == GPU else [f"{number}.{n}" for n in range(100)])
    ]
    chosen = resources.preferred(kind, ids, [], size, Rules(), there, islands())
    assert " ".join(dict.fromkeys(id.partition(".")[0] for id in chosen)) == expected
    assert len(chosen) == size


@given(
    st.sampled_from([CORE, MEMORY]),
    st.dictionaries(st.sampled_from("abcd"), st.sets(st.integers(0, 99), min_size=1), max_size=4),
    st.integers(0, 300),
    st.sampled_from(["binpack", "spread"]),
)
def test_advice_is_always_of_what_is_there_and_of_as_many(
    kind: str, free: dict[str, set[int]], size: int, order: str
) -> None:
    available = {f"{uuid}.{number}" for uuid, numbers in free.items() for number in numbers}
    must = sorted(available)[: min(2, size)]
    there = [gpu(uuid, 16) for uuid in "abcd"]
    chosen = resources.preferred(kind, available, must, size, Rules(order), there)
    assert len(chosen) == len(set(chosen)) == min(size, len(available))
    assert set(must) <= set(chosen) <= available


def test_more_ids_than_the_kubelet_can_take_are_refused() -> None:
    there = [gpu(str(n), 128) for n in range(8)]
    assert len(resources.devices(MEMORY, there, (), {}, Rules(overcommit=12))) == 49152
    with pytest.raises(VcudaError) as refused:
        resources.devices(MEMORY, there, (), {}, Rules(overcommit=12.5))
    assert str(refused.value) == (
        "resource vcuda-memory: 51200 units, and the kubelet can take 50000; "
        "lower memory-overcommit, or switch it off"
    )
