"""A claim server beside the engine; each file has `engine` and `machine` of its own."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from support.agent.claim_server import ClaimServer
from support.engines import Engine
from support.product import Product


@pytest.fixture
def served(engine: Engine, machine: Product) -> Iterator[Engine]:
    """With `vcuda serve`."""
    server = ClaimServer(engine.host, machine, machine.state_dir(engine))
    try:
        yield engine
    finally:
        server.close()
