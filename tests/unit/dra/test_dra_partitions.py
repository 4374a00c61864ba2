"""MIG devices as consumers of their GPU's counters."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_hook.claims import quantity
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices
from vcuda_plugin.agent.dra.partitions import partitioned
from vcuda_plugin.agent.gpus.inventory import Inventory


def mig(name: str, size: int, instance: int, compute: int = 0, parent: str = "GPU-B") -> Gpu:
    return Gpu(name, 1, 1, size, "H100", parent=parent, mig=[0, instance, compute])


def counters(seen: Inventory) -> tuple[dict[str, Any], list[Any]]:
    """What each device consumes, by its name, and the counter sets."""
    offered, sets = partitioned(devices.devices(seen, Rules()), seen)
    return {each["name"]: each.get("consumesCounters") for each in offered}, sets


def test_mig_devices_consume_the_memory_of_their_gpu() -> None:
    parts = [mig("MIG-a", 20 * GIB, 1), mig("MIG-b", 40 * GIB, 2)]
    found, sets = counters(Inventory([*gpus(80), *parts], divided={"GPU-B": 80 * GIB}))
    assert sets == [{"name": "gpu-b", "counters": {"memory": {"value": "80Gi"}}}]
    assert found == {
        "gpu-0": None,
        "mig-a": [{"counterSet": "gpu-b", "counters": {"memory": {"value": "20Gi"}}}],
        "mig-b": [{"counterSet": "gpu-b", "counters": {"memory": {"value": "40Gi"}}}],
    }


def test_compute_instances_of_one_gpu_instance_consume_equal_parts() -> None:
    parts = [mig(f"MIG-{at}", 40 * GIB, 2, at) for at in range(4)]
    found, _ = counters(Inventory(parts, divided={"GPU-B": 80 * GIB}))
    part = [{"counterSet": "gpu-b", "counters": {"memory": {"value": "10Gi"}}}]
    assert list(found.values()) == [part] * 4


def test_no_counter_set_without_devices_that_consume_it() -> None:
    assert counters(Inventory(gpus(16), divided={"GPU-B": GIB})) == ({"gpu-0": None}, [])
    assert counters(Inventory([mig("MIG-a", GIB, 1)])) == ({"mig-a": None}, [])


@given(
    st.lists(
        st.tuples(st.sampled_from("AB"), st.integers(0, 3), st.integers(1, 20)),
        max_size=12,
        unique_by=lambda each: each[:2],
    ),
    st.integers(1, 4),
)
def test_devices_that_exist_never_consume_more_than_there_is(
    instances: list[tuple[str, int, int]], computes: int
) -> None:
    parts = [
        mig(f"MIG-{name}-{number}-{at}", size * GIB + 1, number, at, f"GPU-{name}")
        for name, number, size in instances
        for at in range(computes)
    ]
    memory = {
        f"GPU-{name}": sum(size * GIB + 1 for gpu, _, size in instances if gpu == name)
        for name in "AB"
    }
    found, sets = counters(Inventory(parts, divided=memory))
    for each in sets:
        used = [
            quantity.whole(part["counters"]["memory"]["value"])
            for consumed in found.values()
            for part in consumed
            if part["counterSet"] == each["name"]
        ]
        there = quantity.whole(each["counters"]["memory"]["value"])
        assert there is not None
        assert sum(filter(None, used)) <= there
