"""A container with a share starts and ends on every supported Python."""

from __future__ import annotations

import json
import os
import subprocess
import tempfile
from collections.abc import Callable

import pytest

from support.engines.base import Engine
from support.needed import skip_or_fail
from support.product import REPOSITORY, Product, asking, missing
from support.wrapper.entry_points import FILL, FILLED, LIMIT
from support.wrapper.pythons import VERSIONS, python


@pytest.fixture(scope="module")
def installed(session_folder: str) -> Product:
    if reason := missing():
        skip_or_fail(reason)
    return Product(tempfile.mkdtemp(dir=session_folder))


def link_programs(product: Product, python: str) -> list[str]:
    """Link the launcher and the hook anew, for another Python; the rest is the same for each."""
    names = ("vcuda-container-runtime", "vcuda-container-hook")
    programs = [os.path.join(product.prefix, "bin", name) for name in names]
    values = {
        "PREFIX": product.prefix,
        "SYSCONFDIR": os.path.dirname(os.path.dirname(product.config)),
        "LAUNCHER": programs[0],
        "HOOK": programs[1],
        "LAUNCHER_PYTHON": python,
    }
    words = ["-s", "-C", REPOSITORY, "-W", "oci/launcher/handover/exec.c"]
    words += [f"{name}={value}" for name, value in values.items()]
    subprocess.run(["make", *words, *programs], check=True)
    return programs


@pytest.mark.parametrize("version", VERSIONS)
def test_a_container_gets_its_share_on_this_python(
    version: str, start_engine: Callable[[str], Engine], installed: Product, container: str
) -> None:
    path, product, engine = python(version), installed, start_engine("runc-v1")
    # No other Python can be started by mistake: the path is compiled in.
    for program in link_programs(product, path):
        with open(program, "rb") as file:
            assert path.encode() in file.read()
    with product.on(engine):
        ran = engine.run(container, FILL, **asking(engine, core=30, memory_bytes=LIMIT))
        assert (ran.rc, json.loads(ran.stdout)) == (0, FILLED), ran.stderr
        assert product.allocations(engine) == []
