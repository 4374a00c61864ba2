"""What the agent offers by DRA: ResourceSlices, taints and health, with a fake API server."""

from __future__ import annotations

import asyncio
import os
import time
from typing import Any

import pytest

from support.agent.node_agent import Agent, AgentNode
from support.api_server.fake_api_calls import merged
from support.api_server.fake_api_objects import SLICES
from support.kubelet.dra_claims import NODE
from support.kubelet.dra_node import DraNode
from support.waiting import until


def test_the_gpus_are_in_a_slice_and_not_at_the_device_plugin(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        info = dra.kubelet.register()
        assert (info.type, info.name) == ("DRAPlugin", "gpu.vcuda.io")
        assert list(info.supported_versions) == ["v1.DRAPlugin"]
        assert os.stat(os.path.dirname(info.endpoint)).st_mode & 0o777 == 0o750
        (each,) = dra.slices().values()
        assert each["metadata"]["ownerReferences"][0]["uid"] == "node-uid"
        capacity = [device["capacity"]["memory"]["value"] for device in dra.devices()]
        assert capacity == ["16Gi", "16Gi"]
        assert dra.node.kubelet.registrations == []
    assert dra.kubelet.sockets() == []


def test_an_unhealthy_gpu_gets_a_taint_and_a_new_generation(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        dra.node.order("fail", "--event", "0", "--xid", "79")
        until(lambda: "taints" in dra.devices()[0])
        assert dra.devices()[0]["taints"][0]["key"] == "gpu.vcuda.io/unhealthy"
        assert (dra.generation(), "taints" in dra.devices()[1]) == (2, False)


@pytest.mark.parametrize(("offer", "is_followed"), [("dra", False), ("plugin", True)])
def test_a_pod_with_a_resource_is_followed_unless_dra_gives_it(
    dra: DraNode, offer: str, is_followed: bool
) -> None:
    dra.node.configure(gpu_offer=offer, gpu_resource="nvidia.com/gpu")
    uid = dra.api.create("old", {"main": {"nvidia.com/gpu": 1}})
    with dra.agent():
        # The devices are offered after the pods are known.
        until(lambda: bool(dra.devices() or dra.node.kubelet.registrations))
        decisions = os.listdir(f"{dra.node.state_dir}/decisions")
        assert decisions == ([f"{uid}.json"] if is_followed else [])


def test_slices_that_another_removed_or_changed_come_back(dra: DraNode) -> None:
    with dra.agent():
        until(lambda: len(dra.devices()) == 2)
        (name,) = dra.slices()
        dra.api.delete(name, SLICES)
        until(lambda: len(dra.devices()) == 2)
        changed = dra.slices()[name]
        changed["spec"]["devices"] = changed["spec"]["devices"][:1]
        dra.api.set(SLICES, name, changed)
        until(lambda: len(dra.devices()) == 2)
        assert dra.generation() == 2


@pytest.mark.parametrize("method", ["POST", "PATCH"])
def test_slice_removed_before_its_writers_answer_came_is_written_again(
    dra: DraNode, method: str
) -> None:
    """The watch is faster than the answer, and tells of a removal that is newer than it."""
    late: list[str] = []

    async def remove(name: str) -> None:
        dra.api.delete(name, SLICES)
        late.append(name)
        await asyncio.sleep(0.5)

    def applied(called: str, path: str) -> Any:
        is_it = path.startswith(SLICES) and called == method and not late
        return remove(*dra.slices()) if is_it else None

    dra.api.applied = applied
    with dra.agent():
        if method == "PATCH":
            until(lambda: len(dra.devices()) == 2)
            (name,) = dra.slices()
            dra.api.set(SLICES, name, merged(dra.slices()[name], {"spec": {"devices": []}}))
        until(lambda: bool(late))
        until(lambda: len(dra.devices()) == 2, seconds=10)


def test_slices_are_written_once_the_api_is_back(dra: DraNode) -> None:
    dra.api.refuse = 503
    with dra.agent():
        dra.kubelet.register()
        time.sleep(0.5)
        dra.api.refuse = 0
        until(lambda: len(dra.devices()) == 2)
        assert dra.generation() == 1


def test_field_that_the_server_drops_is_one_line_and_comes_with_its_gate(dra: DraNode) -> None:
    dra.api.dropped = ("allowMultipleAllocations", "taints")

    def lines(agent: Agent) -> list[str]:
        return [each for each in agent.log() if "drops" in each]

    with dra.agent() as agent:
        until(lambda: lines(agent) != [])
        assert lines(agent) == [
            "vcuda-node-agent: ResourceSlices: the API server drops allowMultipleAllocations: a"
            " claim gets a whole GPU, whatever it asks for; enable the feature gate"
            " DRAConsumableCapacity in it, kube-scheduler, the controller manager and the kubelets"
        ]
    dra.api.dropped = ()
    with dra.agent() as agent:
        until(lambda: len(dra.devices()) == 2)
        until(lambda: all("allowMultipleAllocations" in each for each in dra.devices()))
        assert lines(agent) == []


def test_kubelet_is_told_at_once_that_a_gpu_is_unhealthy_and_why(dra: DraNode) -> None:
    with dra.agent():
        dra.kubelet.register()
        until(lambda: len(dra.devices()) == 2)
        stream = dra.kubelet.watch_health()

        def told() -> dict[str, tuple[int, str]]:
            found = next(stream).devices
            assert {each.device.pool_name for each in found} == {NODE}
            assert {each.health_check_timeout_seconds for each in found} == {30}
            return {each.device.device_name: (each.health, each.message) for each in found}

        first, second = (uuid.lower() for uuid in dra.uuids())
        assert told() == {first: (1, ""), second: (1, "")}
        dra.node.order("fail", "--event", "0", "--xid", "79")
        assert told() == {first: (2, "Xid 79"), second: (1, "")}
        # A kubelet that was restarted: the former stream ends, and the new one has all.
        again = dra.kubelet.watch_health()
        assert {each.device.device_name for each in next(again).devices} == {first, second}
        assert list(stream) == []
        stream = again


def test_dra_without_a_cluster_is_one_line(node: AgentNode) -> None:
    node.configure(gpu_offer="dra")
    agent = Agent([node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder])
    assert agent.process.wait(30) == 1
    (line,) = agent.log()
    assert line == (
        f"vcuda-node-agent: {node.config}: DRA needs the Kubernetes API; "
        'name a kubeconfig with --kubeconfig, or set gpu-offer = "plugin"'
    )
