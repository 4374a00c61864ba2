"""Fixtures: a node with an arbiter of GPU time."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent.arbiter_node import ArbiterNode


@pytest.fixture
def arbiter_node(tmp_path: Path) -> Iterator[ArbiterNode]:
    made = ArbiterNode(tmp_path / "state")
    yield made
    made.node.close()
