"""Claims of devices under MPS, and of places of GPU instances: prepared, killed, unprepared."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from support.agent.node_agent import AgentNode
from support.api_server.fake_api_objects import CLAIMS
from support.gpu.mig_node import H100
from support.kubelet import dra_node
from support.kubelet.dra_claims import SPACE, claim, parameters, result
from support.kubelet.dra_node import DraNode
from support.softgpu.mps_processes import daemons, kill_daemons
from support.waiting import until
from vcuda_oci.host.host import load
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger.ledger import Ledger

MIB = 1 << 20


@contextlib.contextmanager
def running(node: AgentNode, **settings: str) -> Iterator[DraNode]:
    node.state_dir = tempfile.mkdtemp()  # a short path: sockets of MPS lie below it
    with dra_node.running(node, **settings) as dra:
        yield dra
    shutil.rmtree(node.state_dir)


def offered(dra: DraNode) -> dict[str, dict[str, Any]]:
    return {
        device["name"]: device
        for each in dra.slices().values()
        for device in each["spec"].get("devices", ())
    }


def allocate(dra: DraNode, uid: str, device: str, *config: Any, **how: Any) -> tuple[str, str, str]:
    """Allocate the device to a claim; return it as the kubelet names it."""
    found = result("GPU", **how) | {"device": device}
    dra.api.set(CLAIMS, f"{SPACE}/claim-{uid}", claim(uid, found, config=config))
    return SPACE, f"claim-{uid}", uid


def mounted(dra: DraNode, uid: str) -> list[str]:
    with open(f"{dra.cdi}/vcuda.io-claim_{uid}.json") as file:
        tree = json.load(file)
    every = [*tree["containerEdits"]["mounts"], *tree["devices"][0]["containerEdits"]["mounts"]]
    return [mount["hostPath"] for mount in every]


def instances(node: AgentNode) -> list[tuple[str, int]]:
    """Name of the profile's id and place of each GPU instance on the second GPU."""
    facts = load(str(node.gpu.root), f"{node.gpu.root.parent}/look.json")
    with Mig(facts.library) as driver:
        gpu = next(gpu for gpu in facts.gpus if gpu.divided)
        names = {one.id: one.name for one in driver.layout(gpu.uuid).profiles}
        return sorted((names[one.profile], one.start) for one in driver.instances(gpu.uuid))


def test_claim_under_mps_gets_a_daemon_that_outlives_a_killed_driver(
    new_node: Callable[..., AgentNode],
) -> None:
    # Before driver 580 a server has a file in /dev/shm.
    node = new_node("--gpus", "2", "--driver-version", "570.10")
    with running(node, mps_devices="yes") as dra, dra.agent() as agent:
        until(lambda: len(offered(dra)) == 4)
        one, twin = [name for name in sorted(offered(dra)) if name.startswith(min(offered(dra)))]
        # One counter for both: kube-scheduler gives claims one of them at a time.
        used = [offered(dra)[name]["consumesCounters"] for name in (one, twin)]
        assert used[0] == used[1] == [{"counterSet": one, "counters": {"sharing": {"value": "1"}}}]
        dra.kubelet.register()
        mine = allocate(dra, "a", twin)
        try:
            answer = dra.kubelet.prepare(mine)["a"]
            assert answer.error == ""
            (record,) = Ledger(node.state_dir).read()[0]
            assert (record.isolation, record.shares[0].core_percent) == ("mps", 30)
            held = daemons(node.state_dir)
            assert len(held) == 2
            sources = mounted(dra, "a")
            assert all(map(os.path.exists, sources))
            assert [path for path in sources if path.endswith("/pipe/control")] != []
            assert [path for path in sources if path.startswith("/dev/shm/cuda.shm.")] != []
            first = agent.child("dra_process")
            os.kill(first, 9)
            until(lambda: agent.children("dra_process") not in ([], [first]))
            dra.kubelet.register()
            again = dra.kubelet.prepare(mine)["a"]
            assert (again.error, list(again.devices)) == ("", list(answer.devices))
            assert (daemons(node.state_dir), dra.held()) == (held, ["dra@a"])
            assert dra.kubelet.unprepare(mine)["a"].error == ""
            until(lambda: daemons(node.state_dir) == [])
        finally:
            kill_daemons(node.state_dir)


@pytest.mark.parametrize("driver", ["590.10", "615.10"])  # MPS of version 2, and of version 3
def test_claim_under_mps_gets_a_static_partition_and_the_next_is_refused(
    new_node: Callable[..., AgentNode], driver: str
) -> None:
    node = new_node("--gpus", "1", "--driver-version", driver)
    with running(node, mps_devices="yes", mps_partitions="40") as dra, dra.agent():
        until(lambda: len(offered(dra)) == 2)
        dra.kubelet.register()
        first, second = (allocate(dra, uid, max(offered(dra))) for uid in ("a", "b"))
        try:
            assert dra.kubelet.prepare(first)["a"].error == ""
            (record,) = Ledger(node.state_dir).read()[0]
            assert (record.partition, record.partitions) == (1, [40])
            (named,) = [path for path in mounted(dra, "a") if "/partitions/" in path]
            assert Path(named).read_text().startswith(record.shares[0].uuid)
            error = dra.kubelet.prepare(second)["b"].error
            assert "has no free static partition that is wide enough" in error
        finally:
            dra.kubelet.unprepare(first)
            until(lambda: daemons(node.state_dir) == [])
            kill_daemons(node.state_dir)


def test_isolation_that_the_device_has_not_is_refused_with_nothing_made(node: AgentNode) -> None:
    with running(node) as dra, dra.agent():
        until(lambda: len(offered(dra)) == 2)
        dra.kubelet.register()
        device = next(iter(offered(dra)))
        for said, name in (("mps", "mps.gpu.vcuda.io"), ("mig", "mig.gpu.vcuda.io")):
            mine = allocate(dra, said, device, parameters(isolation=said))
            error = dra.kubelet.prepare(mine)[said].error
            assert f"its device is not of that kind; use deviceClassName: {name}" in error
        assert (dra.held(), daemons(node.state_dir)) == ([], [])


def test_claim_of_a_place_has_its_instance_there_once_whatever_is_killed(
    new_node: Callable[..., AgentNode],
) -> None:
    node = new_node("--gpus", "2", *H100, "--mig", "1=")
    with running(node) as dra, dra.agent() as agent:
        until(lambda: len(offered(dra)) > 2)
        (gpu,) = [each for each in offered(dra) if "consumesCounters" not in offered(dra)[each]]
        places = [name for name in offered(dra) if name != gpu]
        assert len(places) == 18  # 7, 4, 3, 2, 1 and 1 of H100's plain profiles
        name = next(each for each in places if each.endswith("-1g-10gb-2"))
        device = offered(dra)[name]
        assert device["capacity"] == {"cores": {"value": "14"}, "memory": {"value": "9984Mi"}}
        (used,) = device["consumesCounters"]
        assert used["counters"] == {"compute": {"value": "1"}, "slice-2": {"value": "1"}}
        dra.kubelet.register()
        mine = allocate(dra, "a", name, cores=None, memory=None)
        first = dra.kubelet.prepare(mine)["a"]
        assert (first.error, instances(node)) == ("", [("1g.10gb", 2)])
        (record,) = Ledger(node.state_dir).read()[0]
        assert (record.isolation, record.shares[0].memory_bytes) == ("mig", 9984 * MIB)
        agent.kill()
        # As after a kill between the instance and the claim's record.
        os.unlink(f"{node.state_dir}/allocations/dra@a.json")
        with dra.agent():
            dra.kubelet.register()
            again = dra.kubelet.prepare(mine)["a"]
            assert (again.error, list(again.devices)) == ("", list(first.devices))
            assert (instances(node), dra.held()) == ([("1g.10gb", 2)], ["dra@a"])
            assert dra.kubelet.prepare(mine)["a"].error == ""
            assert len(offered(dra)) == 19  # made for the claim: no device of its own
            taken = allocate(dra, "b", name, cores=None, memory=None)
            assert "is taken" in dra.kubelet.prepare(taken)["b"].error
            assert dra.kubelet.unprepare(mine)["a"].error == ""
            assert (instances(node), dra.held(), os.listdir(dra.cdi)) == ([], [], [])
