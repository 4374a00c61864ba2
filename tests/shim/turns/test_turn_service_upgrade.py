"""Two containers share a GPU while the service with the turn keeper is upgraded, in real time.

Witnesses with wide bounds: test_turn_upgrade.py holds the shares in virtual time.
"""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.agent.test_hand_over import BESIDE
from shim.policy_node import PolicyNode
from shim.turns.test_turns_real_time import ending, turns_pass
from support.agent.agent_fixtures import agent_prefix, new_node
from support.agent.node_agent import Agent, AgentNode
from support.shares.judge import SOFTGPU
from support.waiting import until

__all__ = ["agent_prefix", "new_node"]

pytestmark = pytest.mark.timed

BESIDE_S = 2.0  # before the upgrade and after it
LOAD_S = 60.0  # at most: it is interrupted after the second measurement
# A busy machine takes from both containers, and not the same from each.
PART_OFF = 0.15
LONGEST_WAIT_S = 3.0


@pytest.fixture
def services(new_node: Callable[..., AgentNode]) -> AgentNode:
    return new_node()


@pytest.fixture
def node(services: AgentNode) -> Iterator[PolicyNode]:
    """Containers in the state folder of the services."""
    made = PolicyNode(os.path.dirname(services.state_dir), str(services.gpu.root))
    yield made
    made.close()


@pytest.fixture
def start(services: AgentNode) -> Iterator[Callable[..., Agent]]:
    """Starts `vcuda serve` or the node agent."""
    started: list[Agent] = []
    words = {
        "vcuda": ["serve"],
        "vcuda-node-agent": ["--kubelet-dir", services.kubelet.folder, "--take-over"],
    }

    def start(name: str) -> Agent:
        program = os.path.join(os.path.dirname(services.program), name)
        started.append(Agent([program, "--config", services.config, *words[name]]))
        return started[-1]

    yield start
    for agent in started:
        agent.end()


def keepers(node: PolicyNode) -> list[int]:
    """Process ids of the turn keepers of this node."""
    found = []
    for name in filter(str.isdigit, os.listdir("/proc")):
        with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as line:
            words = line.read().split(b"\0")
            if words[0].endswith(b"vcuda-turn-keeper") and words[1] == node.state_dir.encode():
                found.append(int(name))
    return found


def account(node: PolicyNode, busy: list[subprocess.Popen[str]]) -> list[float]:
    """How long each process has held the GPU, in seconds, as the GPU counts."""
    command = [SOFTGPU, "time", node.driver_root, "--json"]
    gpu = json.loads(subprocess.check_output(command))["gpus"][0]
    held = {one["pid"]: one["held_ns"] / 1e9 for one in gpu["processes"]}
    return [held[process.pid] for process in busy]


def stop(agent: Agent) -> None:
    agent.process.send_signal(signal.SIGTERM)
    assert agent.process.wait(30) == 0


def restarted(start: Callable[..., Agent], old: Agent) -> Agent:
    """As a package's upgrade has systemd do it."""
    stop(old)
    new = start("vcuda")
    new.await_ready()
    return new


def rolled(start: Callable[..., Agent], old: Agent) -> Agent:
    """As a DaemonSet's rollout does it: the former agent ends when the next one has registered."""
    new = start("vcuda-node-agent")
    until(lambda: BESIDE in new.log())
    stop(old)
    new.await_ready()
    return new


@pytest.mark.parametrize(
    ("name", "upgrade"),
    [("vcuda", restarted), ("vcuda-node-agent", rolled)],
    ids=["vcuda serve restarted", "node agent rolled"],
)
def test_an_upgrade_under_load_goes_on_with_turns_and_fails_no_launch(
    node: PolicyNode,
    start: Callable[..., Agent],
    name: str,
    upgrade: Callable[[Callable[..., Agent], Agent], Agent],
) -> None:
    guests = [node.container(core=core) for core in ("30", "70")]
    old = start(name)
    old.await_ready()
    busy: list[subprocess.Popen[Any]] = [node.busy(guest, LOAD_S) for guest in guests]
    with ending(*busy):
        until(lambda: turns_pass(guests))
        (former,) = keepers(node)
        before = account(node, busy)
        time.sleep(BESIDE_S)
        new = upgrade(start, old)
        until(lambda: turns_pass(guests))
        time.sleep(BESIDE_S)
        after = account(node, busy)
        (keeper,) = keepers(node)
        assert (keeper != former, new.process.poll()) == (True, None)
        worked = [end - begin for begin, end in zip(before, after)]
        assert worked[0] / sum(worked) == pytest.approx(0.3, abs=PART_OFF)
        for process in busy:
            process.send_signal(signal.SIGINT)
        for process in busy:
            out, err = process.communicate(timeout=60)
            assert (process.returncode, err) == (0, "")
            assert json.loads(out)["longest_us"] < LONGEST_WAIT_S * 1e6
