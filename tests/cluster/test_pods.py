"""Pods with shares, placed by a real kube-scheduler and started by a real kubelet."""

from __future__ import annotations

import json
import time

from cluster.kubernetes.node import CORE, Node
from support.product import MEMORY_UNIT

# The kubelet's line, at -v=2, for each resource that a plugin registers.
CONNECTED = "Device plugin connected"
# The kernel reports the end of a container's first process; the sweep finds it after 15 s.
FREE_SECONDS = 5.0


def total_bytes(node: Node, pod: str) -> list[int]:
    """The memory of each GPU that the pod's container sees."""
    devices = json.loads(node.exec(pod, "vcuda-workload", "info"))["devices"]
    return [device["total_bytes"] for device in devices]


def test_a_pod_sees_the_share_that_it_asked_for(node: Node) -> None:
    node.run("first", 30, 4)
    node.wait_running("first")
    assert total_bytes(node, "first") == [4 * MEMORY_UNIT]
    assert node.held() == {"first": (30, 4 * MEMORY_UNIT)}


def test_a_pod_without_room_waits_until_another_is_deleted(node: Node) -> None:
    for name in ("first", "second"):
        node.run(name, 70, 4)
        node.wait_running(name)
    node.run("third", 50, 4)
    node.wait(lambda: node.events("third", "FailedScheduling") != [], "the pod's refusal")
    (message, *_) = node.events("third", "FailedScheduling")
    # kube-scheduler passes the reason through a format string.
    assert "largest free share" in message
    assert "%!" not in message
    assert node.phase("third") == "Pending"
    node.delete("first")
    node.wait_running("third")
    assert node.held() == {
        name: (core, 4 * MEMORY_UNIT) for name, core in (("second", 70), ("third", 50))
    }


def test_restarted_kubelet_retains_shares_and_allocates_no_excess(node: Node) -> None:
    for name in ("first", "second"):
        node.run(name, 70, 4)
        node.wait_running(name)
    before = node.held()
    node.restart_kubelet()
    node.run("third", 30, 4)
    node.wait_running("third")
    node.wait(lambda: node.allocatable(CORE) == 200, "the GPUs of the restarted kubelet")
    assert node.held() == {**before, "third": (30, 4 * MEMORY_UNIT)}
    assert total_bytes(node, "first") == [4 * MEMORY_UNIT]


def test_a_killed_agent_is_no_loss_to_running_pods(node: Node) -> None:
    node.run("first", 70, 4)
    node.wait_running("first")
    connected = node.kubelet.log().count(CONNECTED)
    node.kill_agent()
    assert total_bytes(node, "first") == [4 * MEMORY_UNIT]
    node.wait(
        lambda: node.kubelet.log().count(CONNECTED) == connected + 2, "the new agent's registration"
    )
    node.wait(lambda: node.allocatable(CORE) == 200, "the agent's GPUs")
    node.run("second", 70, 4)
    node.wait_running("second")
    assert node.held() == dict.fromkeys(("first", "second"), (70, 4 * MEMORY_UNIT))


def test_share_of_a_pod_deleted_by_force_is_free_within_seconds(node: Node) -> None:
    node.run("first", 70, 4)
    node.wait_running("first")
    node.kubectl("delete", "pod", "first", "--force", "--grace-period=0")
    deleted = time.monotonic()
    node.wait(lambda: node.held() == {}, "the end of the share")
    assert time.monotonic() - deleted < FREE_SECONDS
