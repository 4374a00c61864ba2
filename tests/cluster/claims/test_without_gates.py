"""DRA on a Kubernetes without consumable capacity, as 1.34 and 1.35 are by default."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.kubernetes import claims
from cluster.kubernetes.node import Node
from support.product import MIB

GATE = "DRAConsumableCapacity"


@pytest.fixture
def ungated(started: Node, node: Node) -> Iterator[Node]:
    # An API server keeps the fields of a slice that has them already.
    started.wait(lambda: claims.devices(started) == [], "the end of another test's slices")
    started.cluster.restart(f"--feature-gates={GATE}=false")
    started.offer("dra", first_only=True)
    started.wait(lambda: len(claims.devices(started)) == 2, "the node's devices")
    yield started
    started.kubectl("delete", "pods", "--all", "--timeout=50s")
    # What was stored without the gate has no amounts.
    started.kubectl("delete", "resourceclaimtemplates", "--all")
    started.offer("plugin")
    started.cluster.restart()


def test_claim_gets_a_whole_gpu_until_the_gate_is_set(ungated: Node) -> None:
    line = f"a claim gets a whole GPU, whatever it asks for; enable the feature gate {GATE}"
    ungated.wait(lambda: line in ungated.agent_log(), "the agent's line")
    pods = ("first", "other")
    for name in pods:
        claims.run(ungated, name, 30, "1Gi")
        ungated.wait_running(name)
    assert ungated.held() == dict.fromkeys(pods, (100, 16384 * MIB))
    one, other = ungated.gpus_held().values()
    assert one != other
    for name in pods:
        ungated.delete(name)
    # Nothing but the next agent is needed for parts of GPUs, once the gate is set.
    ungated.cluster.restart()
    ungated.kill_agent()

    def shared() -> bool:
        found = [device for spec in claims.specs(ungated) for device in spec.get("devices") or ()]
        return [device.get("allowMultipleAllocations") for device in found] == [True, True]

    ungated.wait(shared, "the devices that can be shared")
    claims.run(ungated, "second", 31, "1Gi")
    ungated.wait_running("second")
    # The kubelet releases a claim after its pod, again if the agent has ended meanwhile.
    only = {"second": (31, 1024 * MIB)}
    ungated.wait(lambda: ungated.held() == only, "the end of the first claims")
