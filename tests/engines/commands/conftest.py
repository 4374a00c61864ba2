"""Fixture: `vcuda run` by each low-level runtime."""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator

import pytest

from support.engines.base import Engine
from support.engines.low_level import LowLevel
from support.engines.vcuda_command import Command
from support.host import cgroups
from support.product import Product


# Each runtime, and each version of cgroups that this host has.
@pytest.fixture(params=["runc-v1" if cgroups.is_v1() else "runc-v2", "crun-v2"])
def vcuda(
    request: pytest.FixtureRequest,
    start_engine: Callable[[str], Engine],
    product: Product,
    session_folder: str,
) -> Iterator[Command]:
    engine = start_engine(request.param)
    assert isinstance(engine, LowLevel)
    folder = tempfile.mkdtemp(dir=session_folder)
    command = Command(product, engine, folder)
    yield command
    command.close()
    mounts = engine.host.check(["cat", "/proc/mounts"])
    assert folder not in mounts
