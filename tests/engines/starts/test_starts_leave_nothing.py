"""Hundreds of starts leave nothing on the host and do not grow the claim server."""

from __future__ import annotations

import tempfile
from collections.abc import Callable

import pytest

from release.soak import verdict
from release.soak.starts import Starts, soak
from support.engines.base import Engine
from support.engines.low_level import LowLevel
from support.host import cgroups
from support.product import Product

STARTS = 100


@pytest.fixture(scope="module")
def without_server(session_folder: str) -> Product:
    return Product(tempfile.mkdtemp(dir=session_folder))


@pytest.mark.parametrize("name", ["runc-v1" if cgroups.is_v1() else "runc-v2", "crun-v2"])
def test_starts_leave_nothing_on_the_host_and_the_claim_server_as_it_was(
    start_engine: Callable[[str], Engine], product: Product, without_server: Product, name: str
) -> None:
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    starts = Starts(engine, product, without_server)
    try:
        soaked = soak(starts, STARTS, print)
    finally:
        starts.close()
    assert soaked.left == []
    growth = verdict.growth(soaked)
    assert growth is not None and growth < verdict.MOST_GROWTH_BYTES, soaked
