"""The node agent goes and comes while pods are created: none is rejected."""

from __future__ import annotations

from cluster.kubernetes.node import CORE, Node
from support.product import MEMORY_UNIT

# The kubelet's line, at -v=2, when a resource's devices become unhealthy: it rejects pods from then
# on.
UNHEALTHY = "Endpoint became unhealthy"


def test_rollout_of_the_agent_rejects_no_pod(node: Node) -> None:
    node.run("before", 30, 4)
    node.wait_running("before")
    (former,) = node.agent_pids()
    unhealthy = node.kubelet.log().count(UNHEALTHY)
    names = node.roll_out_amid_pods(lambda name: node.run(name, 1, 1, ["true"], restart="Never"))
    assert former not in node.agent_pids()
    node.wait_ended(names)
    assert node.phases(names) == dict.fromkeys(names, "Succeeded")
    # The kubelet may report a pod's end before it ends the sandbox, and the share with it.
    left = {"before": (30, 4 * MEMORY_UNIT)}
    node.wait(lambda: node.held() == left, "the end of the pods' shares")
    assert node.kubelet.log().count(UNHEALTHY) == unhealthy
    # The new agent's own end is noticed too.
    node.kill_agent()
    node.wait(lambda: node.kubelet.log().count(UNHEALTHY) == unhealthy + 2, "the kubelet's notice")
    node.wait(lambda: node.allocatable(CORE) == 200, "the agent's GPUs")


def test_node_whose_agent_has_ended_gets_no_pod_until_it_is_back(node: Node) -> None:
    names = [f"row-{number}" for number in range(5)]
    node.move_agent({"none": "such"})
    try:
        node.wait(lambda: node.agent_pids() == [], "the agent's end")
        for name in names:
            node.run(name, 1, 1, ["true"], restart="Never")
        node.wait(lambda: node.events(names[-1], "FailedScheduling") != [], "the last's refusal")
        assert [node.phase(name) for name in names] == ["Pending"] * 5
        said = str([node.events(name, "FailedScheduling") for name in names])
        # By the extender, or by kube-scheduler alone once the kubelet has reported no GPU.
        assert (
            "every GPU is unhealthy: the node agent has ended" in said
            or f"1 Insufficient {CORE}" in said
        )
    finally:
        node.move_agent({"none": None})
    node.wait_ended(names)
    assert [node.phase(name) for name in names] == ["Succeeded"] * 5
