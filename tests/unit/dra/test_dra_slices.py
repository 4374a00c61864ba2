"""The writes that make a node's ResourceSlices right, from any state that a kill may leave."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import gpus
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices, slices
from vcuda_plugin.agent.gpus.inventory import Inventory

NODE = "node-1"
Object = dict[str, Any]


def offered(count: int, sick: int = 0) -> list[Object]:
    unhealthy = {f"GPU-{index}": "fell off" for index in range(sick)}
    return devices.devices(Inventory(gpus(*[16] * count), {}, unhealthy), Rules())


def apply(existing: dict[str, Object], writes: list[slices.Write]) -> None:
    for method, path, body in writes:
        name = path.rpartition("/")[2]
        if method == "POST":
            assert body is not None
            existing[body["metadata"]["name"]] = copy.deepcopy(body)
        elif method == "PATCH":
            assert body is not None
            existing[name]["spec"].update(body["spec"])
            existing[name]["metadata"].update(body["metadata"])
        else:
            del existing[name]


def is_whole(existing: dict[str, Object], wanted: list[Object]) -> bool:
    pools = [each["spec"]["pool"] for each in existing.values()]
    shown = [device for name in sorted(existing) for device in existing[name]["spec"]["devices"]]
    return shown == wanted and all(
        pool == pools[0] and pool["resourceSliceCount"] == len(pools) for pool in pools
    )


def test_the_first_slice_belongs_to_its_node() -> None:
    (write,) = slices.writes(NODE, "node-uid", offered(2), {})
    assert (write.method, write.path) == ("POST", slices.PATH)
    body = write.body
    assert body is not None
    owner = {"apiVersion": "v1", "kind": "Node", "name": NODE, "uid": "node-uid"}
    assert body["metadata"]["ownerReferences"] == [{**owner, "controller": True}]
    assert body["spec"] == {
        "driver": "gpu.vcuda.io",
        "nodeName": NODE,
        "pool": {"name": NODE, "generation": 1, "resourceSliceCount": 1},
        "devices": offered(2),
    }


def test_right_slices_are_not_written_again_after_a_restart() -> None:
    existing: dict[str, Object] = {}
    apply(existing, slices.writes(NODE, "", offered(2), existing))
    assert slices.writes(NODE, "", offered(2), existing) == []


def test_fields_that_the_server_changes_cause_no_write() -> None:
    existing: dict[str, Object] = {}
    apply(existing, slices.writes(NODE, "", offered(2, 1), existing))
    (each,) = existing.values()
    each["spec"]["devices"][0]["taints"][0]["timeAdded"] = "2026-01-01T00:00:00Z"
    del each["spec"]["devices"][1]["allowMultipleAllocations"]
    assert slices.writes(NODE, "", offered(2, 1), existing) == []


def test_dropped_fields_are_written_again_on_demand_alone() -> None:
    existing: dict[str, Object] = {}
    apply(existing, slices.writes(NODE, "", offered(2, 1), existing))
    assert slices.dropped(offered(2, 1), existing.values()) == []
    assert slices.writes(NODE, "", offered(2, 1), existing, anew=True) == []
    (each,) = existing.values()
    for device in each["spec"]["devices"]:
        del device["allowMultipleAllocations"]
        device.pop("taints", None)
    assert slices.dropped(offered(2, 1), existing.values()) == [
        "allowMultipleAllocations",
        "taints",
    ]
    assert slices.writes(NODE, "", offered(2, 1), existing) == []
    apply(existing, slices.writes(NODE, "", offered(2, 1), existing, anew=True))
    assert is_whole(existing, offered(2, 1))


def test_a_change_raises_the_generation_above_all_that_exist() -> None:
    existing: dict[str, Object] = {}
    apply(existing, slices.writes(NODE, "", offered(70), existing))
    existing[slices.name_of(NODE, "1")]["spec"]["pool"]["generation"] = 7
    apply(existing, slices.writes(NODE, "", offered(70, 1), existing))
    assert {each["spec"]["pool"]["generation"] for each in existing.values()} == {8}


def test_without_gpus_every_slice_is_removed() -> None:
    existing: dict[str, Object] = {}
    apply(existing, slices.writes(NODE, "", offered(130), existing))
    assert len(existing) == 3
    apply(existing, slices.writes(NODE, "", [], existing))
    assert existing == {}


def test_counter_sets_have_slices_of_their_own_in_the_same_pool() -> None:
    existing: dict[str, Object] = {}
    sets = [{"name": f"gpu-{at}", "counters": {}} for at in range(9)]
    apply(existing, slices.writes(NODE, "", offered(2), existing, sets))
    assert {name: each["spec"].get("sharedCounters") for name, each in existing.items()} == {
        slices.name_of(NODE, "0"): None,
        slices.name_of(NODE, "counters-0"): sets[:8],
        slices.name_of(NODE, "counters-1"): sets[8:],
    }
    pools = [each["spec"]["pool"] for each in existing.values()]
    assert pools == [{"name": NODE, "generation": 1, "resourceSliceCount": 3}] * 3
    # Their devices are in other slices: an API server takes no slice with both.
    assert "devices" not in existing[slices.name_of(NODE, "counters-0")]["spec"]
    # An API server without the gate drops the counters.
    for each in existing.values():
        each["spec"].pop("sharedCounters", None)
    assert slices.writes(NODE, "", offered(2), existing, sets) == []
    apply(existing, slices.writes(NODE, "", offered(2), existing))
    assert list(existing) == [slices.name_of(NODE, "0")]
    assert is_whole(existing, offered(2))


def test_long_node_names_give_different_legal_names() -> None:
    nodes = ["n" * 250, "n" * 249 + "m"]
    names = {slices.name_of(node, "0") for node in nodes}
    assert len(names) == 2
    assert max(map(len, names)) <= 253


@given(st.lists(st.tuples(st.integers(0, 200), st.integers(0, 3), st.integers(0, 9)), max_size=6))
def test_changes_cut_short_anywhere_end_whole(steps: list[tuple[int, int, int]]) -> None:
    existing: dict[str, Object] = {}
    highest = 0
    for count, sick, done in steps:
        wanted = offered(count, min(sick, count))
        apply(existing, slices.writes(NODE, "", wanted, existing)[:done])
        apply(existing, slices.writes(NODE, "", wanted, existing))
        assert is_whole(existing, wanted)
        assert slices.writes(NODE, "", wanted, existing) == []
        generations = {each["spec"]["pool"]["generation"] for each in existing.values()}
        assert not generations or max(generations) >= (highest if existing else 0)
        highest = max([*generations, 0])
