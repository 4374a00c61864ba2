"""A second agent registers beside the running one and takes its place, as in a rollout."""

from __future__ import annotations

import os
import socket
import time
import urllib.error
import urllib.request

import pytest

from contract.agent.test_device_plugin import CORE, MEMORY, offered
from support.agent.node_agent import Agent, AgentNode
from support.kubelet.fake_kubelet import Kubelet
from support.waiting import until

BOTH = {CORE: 30, MEMORY: 20}
BESIDE = "vcuda-node-agent: registered beside the running agent, which may end now"
ALONE = "vcuda-node-agent: the former agent has ended"


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as server:
        return int(server.getsockname()[1])


def status(port: int, path: str) -> int:
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return int(answer.status)
    except urllib.error.HTTPError as error:
        return error.code
    except OSError:
        return 0


def second(node: AgentNode) -> Agent:
    """The next agent, once the running one may end."""
    command = [node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder]
    agent = Agent([*command, "--no-door", "--take-over"])
    until(lambda: BESIDE in agent.log(), what=lambda: "\n".join(agent.log()))
    return agent


@pytest.mark.parametrize("kill", [False, True])
def test_next_agent_takes_over_without_an_unhealthy_device(node: AgentNode, kill: bool) -> None:
    with node.agent(1, "--no-door") as former:
        offered(node, CORE, MEMORY)
        before = node.kubelet.devices(CORE)
        held = node.kubelet.admit("a", "main", BOTH)
        agent = second(node)
        if kill:
            former.kill()
    try:
        agent.await_ready()
        assert ALONE in agent.log()
        assert node.kubelet.admit("b", "main", BOTH) == held
        # It registers once more, so that the kubelet notices its end.
        until(lambda: all(node.kubelet.registrations.count(name) == 3 for name in BOTH))
        assert node.kubelet.unhealthy == 0
        assert (node.kubelet.devices(CORE), node.kubelet.admit("a", "main", BOTH)) == (before, held)
    finally:
        agent.end()
    until(lambda: not node.kubelet.healthy(CORE) and not node.kubelet.healthy(MEMORY))
    assert [name for name in os.listdir(node.kubelet.folder) if "-none" in name] == []


@pytest.mark.parametrize("kill", [False, True])
def test_agent_whose_successor_ends_registers_again(node: AgentNode, kill: bool) -> None:
    with node.agent(1, "--no-door"):
        offered(node, CORE, MEMORY)
        agent = second(node)
        called = dict(node.kubelet.plugins)
        if kill:
            agent.kill()
        else:
            agent.end()
        until(lambda: all(node.kubelet.plugins[name] is not called[name] for name in BOTH))
        offered(node, CORE, MEMORY)
        assert node.kubelet.admit("a", "main", BOTH).annotations


def test_kubelet_that_restarts_during_a_hand_over_ends_with_the_next_agent(
    node: AgentNode,
) -> None:
    with node.agent(1, "--no-door"):
        offered(node, CORE, MEMORY)
        agent = second(node)
        node.kubelet.stop()
        node.kubelet = Kubelet(node.kubelet.folder, seed=1)
        node.kubelet.start()
        until(lambda: node.kubelet.registrations.count(CORE) == 2)
    try:
        agent.await_ready()
        # The end of the former's stream has disconnected this agent, or its check of that agent.
        until(lambda: node.kubelet.registrations.count(CORE) >= 3)
        until(lambda: node.kubelet.registrations.count(MEMORY) >= 3)
        offered(node, CORE, MEMORY)
        assert node.kubelet.admit("a", "main", BOTH).annotations
    finally:
        agent.end()


def test_next_agent_is_not_ready_before_the_kubelet_calls_it(node: AgentNode) -> None:
    with node.agent(1, "--no-door") as former:
        offered(node, CORE, MEMORY)
        port = free_port()
        node.configure(listen=f"127.0.0.1:{port}")
        node.kubelet.stop()
        command = [node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder]
        agent = Agent([*command, "--no-door", "--take-over"])
        try:
            until(lambda: status(port, "/healthz") == 200)
            until(lambda: any("2 GPUs" in line for line in agent.log()))
            time.sleep(2)
            assert status(port, "/readyz") == 503
            node.kubelet = Kubelet(node.kubelet.folder, seed=1)
            node.kubelet.start()
            until(lambda: status(port, "/readyz") == 200)
            assert BESIDE in agent.log()
        finally:
            agent.kill()
        assert former.process.poll() is None


def test_second_agent_without_the_option_is_refused(node: AgentNode) -> None:
    with node.agent(1, "--no-door"):
        offered(node, CORE)
        command = [node.program, "--config", node.config, "--kubelet-dir", node.kubelet.folder]
        refused = Agent(command)
        assert refused.process.wait(30) == 1
        assert "another arbiter grants here" in refused.log()[-1]
        refused._log.close()
        assert node.kubelet.registrations.count(CORE) == 1
