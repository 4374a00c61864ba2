"""The agent opens the claim socket for the wrapper, or takes over an open one."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest

from contract.runtime.claim_socket.test_page_keeper import page_can_be_leased
from support.agent.node_agent import Agent
from support.ledger.samples import shares_of
from support.softgpu.softgpu_host import BUILT, SoftGpu
from support.waiting import until
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import Node, asking


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture
def box(installed: Installed, tmp_path: Path) -> Iterator[Node]:
    gpu = SoftGpu(tmp_path, "--gpus", "2", "--memory", "16GiB")
    yield Node(installed, SimpleNamespace(path=str(gpu.root)), tmp_path)  # type: ignore[arg-type]
    subprocess.run([BUILT / "softgpu", "destroy", gpu.root], check=True)
    installed.forget_python_starts()


@pytest.fixture
def new_agent(agent_prefix: str, box: Node) -> Iterator[Callable[[], Agent]]:
    agents: list[Agent] = []

    def start() -> Agent:
        program, folder = agent_prefix + "/bin/vcuda-node-agent", box.folder + "/kubelet"
        words = ["--config", box.installed.settings, "--kubelet-dir", folder]
        agents.append(Agent([program, *words]))
        agents[-1].await_ready()
        return agents[-1]

    yield start
    for agent in agents:
        agent.end()


def python_starts(box: Node) -> int:
    try:
        with open(box.installed.python + ".started") as lines:
            return len(lines.readlines())
    except FileNotFoundError:
        return 0


def test_a_container_is_claimed_by_the_agent_and_by_python_once_it_was_killed(
    box: Node, new_agent: Callable[[], Agent]
) -> None:
    agent = new_agent()
    children = agent.children()
    assert box.create(asking(), id="first") == (0, "")
    assert (set(shares_of(box.ledger)), python_starts(box)) == ({"first"}, 0)
    agent.kill()
    until(lambda: not any(os.path.exists(f"/proc/{pid}") for pid in children))
    assert box.create(asking(), id="second") == (0, "")
    assert (set(shares_of(box.ledger)), python_starts(box)) == ({"first", "second"}, 1)
    new_agent()
    assert box.create(asking(), id="third") == (0, "")
    assert (set(shares_of(box.ledger)), python_starts(box)) == ({"first", "second", "third"}, 1)


def test_the_agent_takes_the_claim_socket_over_and_leaves_it_to_a_later_agent(
    box: Node, new_agent: Callable[[], Agent]
) -> None:
    with box.installed.claim_server() as resident:
        agent = new_agent()
        assert resident.wait(30) == 0
        assert box.create(asking(), id="first") == (0, "")
        with box.installed.claim_server() as later:
            until(lambda: any("door.sock: closed" in line for line in agent.log()))
            assert box.create(asking(), id="second") == (0, "")
            # Longer than the agent waits before it opens the claim socket again.
            taken = os.stat(box.ledger.state_dir + "/door.sock").st_ino
            time.sleep(7)
            assert os.stat(box.ledger.state_dir + "/door.sock").st_ino == taken
            assert (later.poll(), agent.process.poll()) == (None, None)
        # The later server has ended: the agent opens the claim socket again.
        until(lambda: os.path.exists(box.ledger.state_dir + "/door.sock"))
        assert box.create(asking(), id="third") == (0, "")
    assert (set(shares_of(box.ledger)), python_starts(box)) == ({"first", "second", "third"}, 0)


def test_while_the_agent_runs_no_page_of_a_container_can_be_leased(
    box: Node, new_agent: Callable[[], Agent]
) -> None:
    assert box.create(asking(), id="first") == (0, "")
    assert page_can_be_leased(box, "first")
    new_agent()
    until(lambda: not page_can_be_leased(box, "first"))
    assert box.create(asking(), id="second") == (0, "")
    until(lambda: not page_can_be_leased(box, "second"))


def test_a_claim_server_that_dies_is_started_again(
    box: Node, new_agent: Callable[[], Agent]
) -> None:
    agent = new_agent()
    path = box.ledger.state_dir + "/door.sock"
    before = os.stat(path).st_ino
    server = agent.child("claim_socket")
    os.kill(server, 9)
    until(lambda: os.path.exists(path) and os.stat(path).st_ino != before)
    assert box.create(asking()) == (0, "")
    assert (set(shares_of(box.ledger)), python_starts(box)) == ({"box"}, 0)
