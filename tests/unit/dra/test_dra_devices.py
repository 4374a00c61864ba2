"""The devices that a node offers by DRA, by their attributes, capacities and taints."""

from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_hook.claims import quantity
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices
from vcuda_plugin.agent.gpus.inventory import Inventory

LINKED, FAR = 30, 600


def test_a_gpu_is_offered_with_its_facts_and_both_capacities() -> None:
    gpu = Gpu("GPU-5f1C", 0, 0, 16 * GIB, "H100", "0000:01:00.0", "9.0", "tesla")
    seen = Inventory([gpu], {"GPU-5f1C": 1}, {}, None, "580.95.05", "13.0")
    assert devices.devices(seen, Rules(), roots={"GPU-5f1C": "pci0000:00"}) == [
        {
            "name": "gpu-5f1c",
            "allowMultipleAllocations": True,
            "attributes": {
                "uuid": {"string": "GPU-5f1C"},
                "model": {"string": "H100"},
                "brand": {"string": "tesla"},
                "type": {"string": "gpu"},
                "resource.kubernetes.io/pcieRoot": {"string": "pci0000:00"},
                "index": {"int": 0},
                "numaNode": {"int": 1},
                "driverVersion": {"version": "580.95.5"},
                "cudaVersion": {"version": "13.0.0"},
                "computeCapability": {"version": "9.0.0"},
            },
            "capacity": {
                "cores": {
                    "value": "100",
                    "requestPolicy": {
                        "default": "100",
                        "validRange": {"min": "1", "max": "100", "step": "1"},
                    },
                },
                "memory": {
                    "value": "16Gi",
                    "requestPolicy": {
                        "default": "16Gi",
                        "validRange": {"min": "16Mi", "max": "16Gi", "step": "1Mi"},
                    },
                },
            },
        }
    ]


def test_an_unhealthy_gpu_has_a_taint_and_the_others_have_none() -> None:
    found = devices.devices(Inventory(gpus(16, 16), {}, {"GPU-1": "Xid 79"}), Rules())
    assert [device.get("taints") for device in found] == [
        None,
        [{"key": "gpu.vcuda.io/unhealthy", "value": "Xid-79", "effect": "NoSchedule"}],
    ]


def test_linked_gpus_share_a_clique_and_a_lone_one_has_none() -> None:
    far = [[0, FAR, LINKED], [FAR, 0, FAR], [LINKED, FAR, 0]]
    found = devices.devices(Inventory(gpus(16, 16, 16), {}, {}, far), Rules())
    cliques = [device["attributes"].get("nvlinkClique") for device in found]
    assert cliques == [{"int": 0}, None, {"int": 0}]


def test_overcommit_raises_the_memory_and_not_the_cores() -> None:
    (found,) = devices.devices(Inventory(gpus(16)), Rules(overcommit=1.5))
    capacity = found["capacity"]
    assert (capacity["cores"]["value"], capacity["memory"]["value"]) == ("100", "24Gi")


def test_devices_stand_in_the_order_of_their_indexes() -> None:
    mig = Gpu("MIG-b", 0, 0, 8 * GIB, "H100", parent="GPU-0", mig=[0, 1, 0])
    seen = Inventory([*reversed(gpus(16, 16, 16)[1:]), mig])
    found = [device["name"] for device in devices.devices(seen, Rules())]
    assert found == ["mig-b", "gpu-1", "gpu-2"]


@pytest.mark.parametrize(
    ("text", "version"),
    [
        ("580.95.05", "580.95.5"),
        ("13.0", "13.0.0"),
        ("550", "550.0.0"),
        ("", None),
        ("n/a", None),
    ],
)
def test_versions_are_semantic_or_left_out(text: str, version: str | None) -> None:
    (found,) = devices.devices(Inventory(gpus(16), driver=text), Rules())
    shown = found["attributes"].get("driverVersion")
    assert shown == (None if version is None else {"version": version})


@given(st.integers(1, 1 << 50))
def test_a_quantity_is_canonical_and_keeps_its_value(count: int) -> None:
    text = devices.quantity(count)
    assert quantity.whole(text) == count
    assert int(text.rstrip("TGMKi")) % 1024 or text.endswith("Ti")


@given(st.integers(32 << 20, 1 << 42), st.floats(1, 100))
def test_capacities_satisfy_the_rules_of_the_api_server(size: int, overcommit: float) -> None:
    gpu = Gpu("GPU-0", 0, 0, size, "Soft")
    (found,) = devices.devices(Inventory([gpu]), Rules(overcommit=overcommit))
    for amount in found["capacity"].values():
        policy = amount["requestPolicy"]
        value, default = quantity.whole(amount["value"]), quantity.whole(policy["default"])
        least, most, step = (
            quantity.whole(policy["validRange"][key]) for key in ("min", "max", "step")
        )
        assert None not in (value, default, least, most, step)
        assert least + step <= value == most == default  # type: ignore[operator]
        assert (most - least) % step == 0  # type: ignore[operator]


@given(st.text(min_size=1, max_size=80))
def test_a_name_is_a_dns_label(text: str) -> None:
    name = devices.name_of("GPU-" + text)
    assert re.fullmatch(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?", name)
