"""The node agent is killed or hangs: its node gets no pod until it is back."""

from __future__ import annotations

import signal
import time

import pytest

from cluster.node import CORE, Node
from vcuda_plugin.kube.agent_lease import LEASE_SECONDS

# From the agent's end to the report of its pod, and to the extender.
NOTICED_SECONDS = 4.0
AWAY_SECONDS = 8.0
AWAY = "the node agent is away: "


def reasons(node: Node, names: list[str]) -> str:
    return str([node.events(name, "FailedScheduling") for name in names])


@pytest.fixture
def slowly_reporting(node: Node) -> Node:
    """A node of which the kubelet reports as seldom as by default."""
    node.restart_kubelet(nodeStatusUpdateFrequency="10s")
    node.wait(lambda: node.allocatable(CORE) == 200, "the GPUs of the restarted kubelet")
    return node


def test_pods_wait_soon_after_the_agent_is_killed(slowly_reporting: Node) -> None:
    node = slowly_reporting
    # A container that ends a second time is started again after ten seconds.
    node.kill_agent()
    node.wait_agent_ready()
    node.wait(lambda: node.allocatable(CORE) == 200, "the agent's GPUs")
    killed = time.monotonic()
    node.signal_agent(signal.SIGKILL)
    created: dict[str, float] = {}
    while (since := time.monotonic() - killed) < AWAY_SECONDS:
        name = f"row-{len(created)}"
        node.run(name, 1, 1, ["true"], restart="Never")
        created[name] = since
        time.sleep(0.2)
    later = [name for name, since in created.items() if since > NOTICED_SECONDS]
    assert [node.phase(name) for name in later] == ["Pending"] * len(later)
    assert AWAY + "its pod is not ready" in reasons(node, later)
    node.wait_ended(list(created))
    rejected = {name: since for name, since in created.items() if node.phase(name) == "Failed"}
    assert {name for name in rejected if rejected[name] > NOTICED_SECONDS} == set(), rejected


def test_pod_waits_while_the_agent_hangs(node: Node) -> None:
    node.wait_agent_ready()
    stopped = node.signal_agent(signal.SIGSTOP)
    try:
        # Its pod is ready until a probe fails three times; its Lease tells as soon.
        time.sleep(LEASE_SECONDS + 5)
        node.run("first", 30, 4)
        node.wait(lambda: AWAY in reasons(node, ["first"]), "the refusal")
        assert node.phase("first") == "Pending"
    finally:
        node.signal_agent(signal.SIGCONT)
    node.wait_running("first")
    assert stopped in node.agent_pids() or node.agent_pids()
