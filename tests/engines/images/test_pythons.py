"""A container with a share starts and ends on every supported Python."""

from __future__ import annotations

import json
import os
from collections.abc import Callable

import pytest

from support.engines.base import Engine
from support.needed import skip_or_fail
from support.product import Product, asking, missing
from support.wrapper.entry_points import FILL, FILLED, LIMIT
from support.wrapper.pythons import VERSIONS, python


@pytest.mark.parametrize("version", VERSIONS)
def test_a_container_gets_its_share_on_this_python(
    version: str,
    start_engine: Callable[[str], Engine],
    scratch: str,
    container: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    if reason := missing():
        skip_or_fail(reason)
    path = python(version)
    monkeypatch.setenv("LAUNCHER_PYTHON", path)
    product, engine = Product(scratch), start_engine("runc-v1")
    # No other Python can be started by mistake: the path is compiled in.
    for program in ("vcuda-container-runtime", "vcuda-container-hook"):
        with open(os.path.join(product.prefix, "bin", program), "rb") as file:
            assert path.encode() in file.read()
    with product.on(engine):
        ran = engine.run(container, FILL, **asking(engine, core=30, memory_bytes=LIMIT))
        assert (ran.rc, json.loads(ran.stdout)) == (0, FILLED), ran.stderr
        assert product.allocations(engine) == []
