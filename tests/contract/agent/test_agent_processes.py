"""The agent's processes share their imports, and all end when one of them dies."""

from __future__ import annotations

import os
import signal

import pytest

from contract.agent.http.test_agent_http import asked, listening
from contract.agent.test_device_plugin import CORE, offered
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.waiting import until

# What each has that no other has, in MiB. With an interpreter of its own each, and all of the
# cluster's client, these were 5.5, 8, 15 and 20.
MOST_MIB = {"gpu_probe": 4.5, "outside_watch": 6, "http_process": 8, "pod_watch": 12}


def test_what_the_agents_processes_import_is_in_memory_once(node: AgentNode) -> None:
    api = KubeApi()
    api.start()
    path = api.kubeconfig(str(node.gpu.root.parent / "kubeconfig"))
    port = listening(node)
    try:
        with node.agent(1, "--kubeconfig", path, "--node-name", "node-1") as agent:
            until(lambda: bool((asked(port, "/usage") or {}).get("gpus")))
            until(lambda: "node-1" in api.nodes)
            found = {name: own_mib(*agent.children(name)) for name in MOST_MIB}
            assert {name: mib for name, mib in found.items() if mib > MOST_MIB[name]} == {}
    finally:
        api.stop()


def test_a_fork_server_has_nothing_open_but_what_leads_to_the_agent(node: AgentNode) -> None:
    """A lock of the agent's would be held for as long as a child of a killed agent is."""
    with node.agent() as agent:
        offered(node, CORE)
        folder = f"/proc/{agent.fork_server()}/fd"
        open_ones = {int(fd): os.readlink(f"{folder}/{fd}") for fd in os.listdir(folder)}
        beyond = sorted(what.partition(":")[0] for fd, what in open_ones.items() if fd > 2)
        # A pipe for each child reports the child's end.
        assert beyond == [*("pipe" for _ in agent.children()), "socket"]


@pytest.mark.parametrize("victim", ["fork server", "agent"])
def test_a_killed_agent_or_fork_server_leaves_no_process_and_another_can_begin(
    victim: str, node: AgentNode
) -> None:
    agent = Agent([node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder])
    try:
        agent.await_ready()
        offered(node, CORE)
        server, children = agent.fork_server(), agent.children()
        os.kill(server if victim == "fork server" else agent.process.pid, signal.SIGKILL)
        ended = agent.process.wait(30)
        log = agent.log()
        until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in (server, *children)))
    finally:
        agent.kill()
        agent.end()
    if victim == "fork server":
        # systemd and the kubelet start again what has failed.
        line = "vcuda-node-agent: fork server: has ended; see the kernel's log for what killed it"
        assert (ended, log[-1]) == (1, line)
    with node.agent():
        offered(node, CORE)


def own_mib(pid: int) -> float:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        kib = [int(line.split()[1]) for line in file if line.startswith("Private_Dirty:")]
    return kib[0] / 1024
