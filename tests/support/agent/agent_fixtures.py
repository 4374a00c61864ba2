"""Fixtures: the product installed on a node without engines, and the agent on such nodes."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.agent.node_agent import AgentNode
from support.needed import skip_or_fail
from support.product import install, missing
from support.softgpu.softgpu_clock import clock_options

_installed: list[str] = []  # one for all modules and conftest.py that have the fixture


@pytest.fixture(scope="session")
def agent_prefix(tmp_path_factory: pytest.TempPathFactory) -> str:
    """The folder in which the product is installed for nodes without an engine."""
    reason = missing()
    if reason is not None:
        skip_or_fail(reason)
    if not _installed:
        folder = tmp_path_factory.mktemp("installed")
        install(f"{folder}/usr", f"{folder}/etc", f"{folder}/usr/units")
        _installed.append(f"{folder}/usr")
    return _installed[0]


@pytest.fixture
def new_node(
    request: pytest.FixtureRequest, agent_prefix: str, tmp_path: Path
) -> Iterator[Callable[..., AgentNode]]:
    """A function that makes a node with a running fake kubelet; its arguments are options of
    `softgpu create`."""
    made: list[AgentNode] = []

    def make(*options: str) -> AgentNode:
        made.append(AgentNode(tmp_path, agent_prefix, *clock_options(request), *options))
        made[-1].kubelet.start()
        return made[-1]

    yield make
    for node in made:
        node.close()


@pytest.fixture
def node(new_node: Callable[..., AgentNode]) -> AgentNode:
    """A node with two GPUs of 16 GiB."""
    return new_node()
