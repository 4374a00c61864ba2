"""The node agent is killed: its node gets no pod until it is back."""

from __future__ import annotations

import os
import signal
import time

import pytest

from cluster.kubernetes import deployments
from cluster.kubernetes.chart import NAMESPACE
from cluster.kubernetes.control_plane import NODE
from cluster.kubernetes.node import CORE, EXTENDER, Node
from support.processes import name_of
from vcuda_plugin.extender.follow import agents

# From the agent's end to the report of its pod, and to the extender.
NOTICED_SECONDS = 4.0
AWAY_SECONDS = 8.0
AGAIN_SECONDS = 60.0
HUNG_SECONDS = 30.0
MOST_REJECTED = 40
LEASE = """{"apiVersion": "coordination.k8s.io/v1", "kind": "Lease", "metadata": {"name": "node-2"},
"spec": {"holderIdentity": "node-2", "leaseDurationSeconds": 40}}"""


@pytest.fixture
def slowly_reporting(node: Node) -> Node:
    """A node of which the kubelet reports as seldom as by default."""
    node.restart_kubelet(nodeStatusUpdateFrequency="10s")
    node.wait(lambda: node.allocatable(CORE) == 200, "the GPUs of the restarted kubelet")
    return node


def extender_log(node: Node) -> str:
    return node.kubectl("logs", "--namespace", NAMESPACE, EXTENDER, "--container=extender")


def child_of(agent: int, name: str) -> int:
    """The pid of the agent's process of this name, in the agent's own pid namespace."""
    world = os.readlink(f"/proc/{agent}/ns/pid")
    (pid,) = (
        pid
        for pid in map(int, filter(str.isdigit, os.listdir("/proc")))
        if name_of(pid) == name and os.readlink(f"/proc/{pid}/ns/pid") == world
    )
    return pid


def test_pods_wait_soon_after_the_agent_is_killed(slowly_reporting: Node) -> None:
    node = slowly_reporting
    # A container that ends a second time is started again after ten seconds.
    node.kill_agent()
    node.wait(lambda: node.registrations() == 2, "the registrations of the next agent")
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
    assert node.phases(later) == dict.fromkeys(later, "Pending")
    # What comes first, the extender's reason or the kubelet's report, is on the pods.
    assert f"node {NODE}: {agents.NOT_READY}" in extender_log(node)
    node.wait_ended(list(created))
    phases = node.phases(list(created))
    rejected = {name: since for name, since in created.items() if phases[name] == "Failed"}
    assert {name for name in rejected if rejected[name] > NOTICED_SECONDS} == set(), rejected
    node.wait_agent_ready()


def test_deployment_runs_again_after_pods_of_it_were_rejected(slowly_reporting: Node) -> None:
    """A ReplicaSet replaces each rejected pod at once, until the extender knows of the kill."""
    node = slowly_reporting
    with deployments.running(node, node.pod("train", 40, 4), 1):
        (before,) = node.held()
        node.signal_agent(signal.SIGKILL)
        node.kubectl("delete", "pod", before, "--wait=false")
        began = time.monotonic()
        node.wait(lambda: deployments.ready(node, "train") == 1, "the Deployment's pod")
        node.wait(lambda: bool(node.held().keys() - {before}), "the share of the next pod")
        assert time.monotonic() - began < AGAIN_SECONDS
        rejected = [
            pod
            for pod in node.get("pods", "-l", "app=train")["items"]
            if pod["status"].get("reason") == "UnexpectedAdmissionError"
        ]
        assert len(rejected) <= MOST_REJECTED
        # They stay as objects; the node has nothing of them.
        node.wait(lambda: len(node.held()) == 1, "the end of the former pod's share")
        assert before not in node.held()
    node.wait_agent_ready()


@pytest.mark.parametrize("hangs", ["", "pod_watch"])
def test_refused_pod_runs_soon_after_a_hung_agent_goes_on(node: Node, hangs: str) -> None:
    """hangs: the agent itself, or its process that renews the Lease, with which nothing else of the
    node changes."""
    node.wait_agent_ready()
    node.wait(lambda: bool(node.get("lease", NODE, "--namespace", NAMESPACE)), "the Lease")
    (agent,) = node.agent_pids()
    pid = child_of(agent, hangs) if hangs else agent
    before = extender_log(node).count(agents.OLD)
    os.kill(pid, signal.SIGSTOP)
    try:
        # Before the probes of the agent's pod fail, too.
        node.wait(lambda: extender_log(node).count(agents.OLD) > before, "the extender's notice")
        node.run("waits", 30, 4)
        node.wait(lambda: node.events("waits", "FailedScheduling") != [], "the refusal")
        assert agents.OLD in str(node.events("waits", "FailedScheduling"))
    finally:
        os.kill(pid, signal.SIGCONT)
    went_on = time.monotonic()
    node.wait_running("waits")
    assert time.monotonic() - went_on < HUNG_SECONDS
    assert node.agent_pids() == [agent]
    assert "NVML hangs" not in node.agent_log()


def test_agents_lease_is_renewed_by_its_own_node_alone(node: Node) -> None:
    node.wait_agent_ready()

    def renewed(name: str) -> str:
        lease = node.get("lease", name, "--namespace", NAMESPACE)
        return str(lease["spec"]["renewTime"]) if lease else ""

    node.wait(lambda: renewed(NODE) != "", "the Lease")
    before = renewed(NODE)
    node.wait(lambda: renewed(NODE) != before, "the renewal")
    (owner,) = node.get("lease", NODE, "--namespace", NAMESPACE)["metadata"]["ownerReferences"]
    assert owner["uid"] == node.get("node", NODE)["metadata"]["uid"]
    refused = node.as_agent("create", "-f", "-", "--namespace", NAMESPACE, stdin=LEASE)
    assert "a node agent may write the Lease of its own node alone" in refused
    assert renewed("node-2") == ""
