"""GPU instances are a container's alone, end with it, and outlive no kill."""

from __future__ import annotations

from pathlib import Path

import pytest

from support.gpu.mig_node import MigNode
from vcuda_oci.container.identity import Owner
from vcuda_oci.fences import instances
from vcuda_oci.host.mig import Mig
from vcuda_oci.host.nvml import Library, inventory
from vcuda_oci.ledger import claim, instance_records
from vcuda_oci.ledger.claim import Claim
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.placement.rules import Rules
from vcuda_oci.start import apply_share, left_over

GIB = 1 << 30


@pytest.fixture
def node(tmp_path: Path) -> MigNode:
    return MigNode(tmp_path)


def foreign(node: MigNode, profile: str, start: int) -> str:
    """UUID of an instance that another program creates."""
    (gpu,) = [gpu.uuid for gpu in node.facts().gpus if gpu.divided]
    with Mig(node.library) as driver:
        (wanted,) = [one for one in driver.layout(gpu).profiles if one.name == profile]
        before = {one.uuid for one in driver.instances(gpu)}
        driver.add_compute(driver.create(gpu, wanted, start), wanted)
        (uuid,) = {one.uuid for one in driver.instances(gpu)} - before
    return uuid


@pytest.mark.parametrize("by", ["layout", "inventory"])
def test_instance_destroyed_while_it_is_listed_is_left_out(
    node: MigNode, monkeypatch: pytest.MonkeyPatch, by: str
) -> None:
    ended, left = foreign(node, "1g.10gb", 0), foreign(node, "1g.10gb", 3)
    (gpu,), ask = node.gpus, Library.ask
    listed: list[str] = []

    def ask_late(self: Library, function: str, *arguments: object) -> None:
        if function == "nvmlDeviceGetGpuInstanceId" and not listed:
            listed.append(function)
            with Mig(node.library) as other:
                (one,) = [one for one in other.instances(gpu) if one.uuid == ended]
                other.destroy(one)
        ask(self, function, *arguments)

    monkeypatch.setattr(Library, "ask", ask_late)
    if by == "inventory":
        assert [each.uuid for each in inventory(node.library).gpus] == [gpu, left]
    else:
        with Mig(node.library) as driver:
            assert [place[1:] for place in driver.layout(gpu).taken] == [(3, 1)]
    assert listed != []


def test_two_containers_have_an_instance_each_until_their_release(node: MigNode) -> None:
    small, half = node.claim("small", 10), node.claim("half", 30, 20 * GIB)
    assert small.isolation == half.isolation == "mig"
    (one,), (other,) = small.shares, half.shares
    assert (one.core_percent, other.core_percent) == (100, 100)
    assert (one.memory_bytes >> 20, other.memory_bytes >> 20) == (9984, 40448)
    made = node.instances()
    assert {uuid: place[1:] for uuid, place in made.items()} == {
        one.uuid: (19, 6),
        other.uuid: (9, 0),
    }
    assert node.facts().gpu(one.uuid) is not None
    node.release("small")
    assert set(node.instances()) == {other.uuid}
    again = node.claim("small", 10)
    assert again.shares[0].uuid not in made
    assert node.facts().gpu(again.shares[0].uuid) is not None
    assert node.facts().gpu(one.uuid) is None
    node.release("small")
    node.release("half")
    assert (node.instances(), node.records()) == ({}, set())


def test_a_share_that_fits_nowhere_names_what_does(node: MigNode) -> None:
    node.claim("half", 40)
    node.claim("other", 40)
    with pytest.raises(VcudaError, match=r"no room for 3g\.40gb, which holds 30 %"):
        node.claim("third", 30)
    assert node.records() == {"half", "other"}
    node.sweep({"half"})
    node.claim("third", 30)
    assert len(node.instances()) == 2


@pytest.mark.parametrize("by_index", [False, True])
def test_decided_gpu_in_mig_mode_gets_an_instance_by_uuid_or_index(
    node: MigNode, by_index: bool
) -> None:
    (uuid,) = node.gpus
    decided = [GpuShare("0" if by_index else uuid, GIB, 10)]
    wanted = Claim(Owner("own", "own"), Request.of(10, GIB), ["/bin/false"], 1, decided)
    held, _ = apply_share.claim_as("auto", node.ledger, node.facts(), wanted, Rules())
    assert held.isolation == "mig"


def test_no_other_share_is_placed_on_a_containers_instance(node: MigNode) -> None:
    node.claim("own", 10)
    request = Request.of(10)
    owner = Owner("turns", "turns")
    with pytest.raises(VcudaError, match="largest free share is 0 %"):
        claim.claim(node.ledger, node.facts(), Claim(owner, request, ["/bin/false"], 1), Rules())
    static = foreign(node, "1g.10gb", 0)
    shared, _ = claim.claim(
        node.ledger, node.facts(), Claim(owner, request, ["/bin/false"], 1), Rules()
    )
    assert [share.uuid for share in shared.shares] == [static]
    # One that is being created is not known by its UUID yet.
    held = instance_records.Held("new", node.facts().gpus[0].uuid, 19, 3, 1, [static], "")
    instance_records.write(node.ledger.state_dir, held)
    coming = foreign(node, "1g.10gb", 3)
    taken = instance_records.taken(node.ledger.state_dir, node.facts().gpus, [])
    assert coming in {share.uuid for share in taken}
    assert static not in {share.uuid for share in taken}


@pytest.mark.parametrize("ending", ["claim", "release"])
def test_a_kill_at_any_step_leaves_nothing_after_a_sweep(node: MigNode, ending: str) -> None:
    other = foreign(node, "1g.10gb", 3)
    kept = node.claim("kept", 10)
    steps = 0
    while True:
        steps += 1
        if ending == "claim":
            was_killed = node.killed(steps, lambda: node.claim("lost", 30))
            live = {"kept"} if was_killed else {"kept", "lost"}
        else:
            node.claim("lost", 30)
            was_killed = node.killed(steps, lambda: node.release("lost"))
            live = {"kept"}
        node.sweep(live)
        left = set(node.instances())
        assert {other, kept.shares[0].uuid} <= left
        if not was_killed:
            break
        assert len(left) == 2
        assert node.records() == {"kept"}
        assert len(node.ledger.read()[0]) == 1
    assert steps > 6
    assert len(left) == (3 if ending == "claim" else 2)


def test_an_instance_in_use_goes_when_its_process_has_ended(
    node: MigNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(instances, "_IN_USE_SECONDS", 0.2)
    node.claim("busy", 10)
    holder = node.driver.start_client("context = start(); say(); time.sleep(100)")
    assert holder.stdout is not None
    holder.stdout.readline()
    with node.ledger:
        node.ledger.remove("busy")
    left_over.destroy_released(node.ledger)
    assert node.records() == {"busy"}
    with pytest.raises(VcudaError, match="in use"):
        node.claim("busy", 10)
    holder.kill()
    holder.wait()
    left_over.destroy_released(node.ledger)
    assert (node.records(), node.instances()) == (set(), {})


def test_an_instance_that_was_replaced_by_hand_is_not_ours(node: MigNode) -> None:
    allocation = node.claim("own", 10)
    gpu = node.facts().gpus[0].uuid
    with Mig(node.library) as driver:
        (mine,) = driver.instances(gpu)
        driver.destroy(mine)
    other = foreign(node, "1g.10gb", 6)  # the same id and place
    assert other != allocation.shares[0].uuid
    node.release("own")
    assert (set(node.instances()), node.records()) == ({other}, set())


def test_a_refused_creation_leaves_nothing(node: MigNode) -> None:
    for call in (
        "nvmlDeviceCreateGpuInstanceWithPlacement",
        "nvmlGpuInstanceCreateComputeInstance",
    ):
        error = ["--error", "NVML_ERROR_INSUFFICIENT_RESOURCES"]
        node.driver.order("fail", "--call", call, "--nth", "1", *error)
        with pytest.raises(VcudaError, match=f"{call}: 1g.10gb.*no room"):
            node.claim("own", 10)
        assert (node.instances(), node.records()) == ({}, set())
    node.claim("own", 10)
