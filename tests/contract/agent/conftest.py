"""Fixtures: the node agent with a fake kubelet and a fake API server."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent.agent_fixtures import agent_prefix, new_node, node
from support.agent.node_agent import AgentNode
from support.kubelet import dra_node
from support.kubelet.dra_node import DraNode
from support.kubelet.watched_pods import WatchedPods

__all__ = ["agent_prefix", "new_node", "node"]


@pytest.fixture
def pods(tmp_path: Path) -> Iterator[WatchedPods]:
    """A node's pods at a fake API, not followed yet."""
    pods = WatchedPods(tmp_path)
    yield pods
    pods.close()


@pytest.fixture
def dra(node: AgentNode) -> Iterator[DraNode]:
    """A node with two GPUs that offers them by DRA; its agent is not started."""
    with dra_node.running(node) as dra:
        yield dra
