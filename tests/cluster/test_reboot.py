"""The node reboots: its pods with shares run again."""

from __future__ import annotations

import time
from collections.abc import Iterable, Iterator

import pytest

from cluster.kubernetes import deployments
from cluster.kubernetes.node import CORE, Node
from cluster.kubernetes.reboot import HostAgent, reboot
from support.product import MEMORY_UNIT

REBOOTS = 3
# From the kubelet's start on.
AGAIN_SECONDS = 30.0
REJECTED, MISSING = "UnexpectedAdmissionError", "GpuShareMissing"
SHARE = (40, 4 * MEMORY_UNIT)


@pytest.fixture
def host_agent(node: Node) -> Iterator[HostAgent]:
    node.move_agent({"none": "such"})
    node.wait(lambda: node.agent_pids() == [], "the end of the agent's pod")
    agent = HostAgent(node)
    log = agent.service.log
    node.wait(lambda: log().count(": registered as ") == 2, "the agent, see host-agent.log")
    node.wait(lambda: node.allocatable(CORE) == 200, "the GPUs of the host's agent")
    yield agent
    agent.close()
    node.move_agent({"none": None})
    node.wait_agent_ready()


def starts(node: Node, names: Iterable[str]) -> list[str]:
    """When each pod's container started; "" if it does not run."""
    found = []
    for name in names:
        pod = node.get("pod", name)
        statuses = (pod and pod["status"].get("containerStatuses")) or [{"state": {}}]
        found.append(str(statuses[0]["state"].get("running", {}).get("startedAt", "")))
    return found


def reboot_and_wait(node: Node, names: list[str], agent: HostAgent) -> None:
    before = max(starts(node, names))
    reboot(node, agent)
    node.wait(lambda: min(starts(node, names)) > before, "the pods after the reboot")


def test_reboot_keeps_pods_where_the_agent_is_the_hosts_service(
    node: Node, host_agent: HostAgent
) -> None:
    names = ["first", "second", "third"]
    for name in names:
        node.run(name, 40, 4)
        node.wait_running(name)
    for _ in range(REBOOTS):
        reboot_and_wait(node, names, host_agent)
        assert node.held() == dict.fromkeys(names, SHARE)
        assert node.gpus_held() == {name: node.decided(name) for name in names}
        for reason in (REJECTED, MISSING):
            assert [node.events(name, reason) for name in names] == [[], [], []]


def test_reboot_restarts_deployments_where_the_agent_is_a_pod(node: Node) -> None:
    with deployments.running(node, node.pod("train", 40, 4), 3):
        before = max(starts(node, node.held()))
        reboot(node)
        began = time.monotonic()
        node.wait(
            lambda: len(node.held()) == 3 and min(starts(node, node.held())) > before,
            "the Deployment's pods after the reboot",
        )
        assert time.monotonic() - began < AGAIN_SECONDS
        assert set(node.held().values()) == {SHARE}
        assert node.gpus_held() == {name: node.decided(name) for name in node.held()}
