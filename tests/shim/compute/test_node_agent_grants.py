"""The agent's arbiter: containers' rates while it runs, and after it was killed."""

from __future__ import annotations

import contextlib
import os
import time
from collections.abc import Iterator

import pytest

from shim.policy_node import PolicyNode, limits_of
from support.agent.agent_fixtures import agent_prefix
from support.agent.node_agent import Agent

__all__ = ["agent_prefix"]

pytestmark = pytest.mark.timed


@pytest.fixture
def program(agent_prefix: str) -> str:
    return f"{agent_prefix}/bin/vcuda-node-agent"


@contextlib.contextmanager
def running_agent(program: str, node: PolicyNode) -> Iterator[Agent]:
    settings = os.path.join(node.folder, "config.toml")
    with open(settings, "w", encoding="utf-8") as file:
        file.write(f'state-dir = "{node.state_dir}"\ndriver-root = "{node.driver_root}"\n')
        file.write('listen = ""\n')
    agent = Agent([program, "--config", settings, "--kubelet-dir", node.folder])
    try:
        agent.await_ready()
        yield agent
    finally:
        agent.end()


def test_containers_borrow_while_the_agent_runs_and_have_their_own_after_its_kill(
    program: str, node: PolicyNode
) -> None:
    """How exactly they share is held in virtual time; here a busy machine takes from both."""
    guests = [node.container(core=core, policy="elastic") for core in ("10", "30")]

    def lent(shares: list[float]) -> bool:
        """Of the 60 that no container has reserved, 15 and 45 go to these two."""
        return shares[0] > 0.15 and shares[1] > 0.45 and shares[1] > 2 * shares[0]

    def reserved(shares: list[float]) -> bool:
        return 0.05 < shares[0] < 0.12 and 0.15 < shares[1] < 0.32

    def until_ns() -> list[int]:
        return [limits_of(guest).rate_until_ns for guest in guests]

    assert reserved(node.shares(guests, 1.5))
    with running_agent(program, node) as agent:
        assert lent(node.shares(guests, 2))
        agent.kill()
        assert all(until_ns())
        # One second after the arbiter's last poll its grants have expired.
        time.sleep(1.1)
        assert reserved(node.shares(guests, 1.5))
    with running_agent(program, node):
        assert lent(node.shares(guests, 2))
    # A terminated arbiter has restored the reserved rates.
    assert until_ns() == [0, 0]
    assert reserved(node.shares(guests, 1.5))
