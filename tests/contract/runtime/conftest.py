"""Fixtures: the installed wrapper, and its launcher alone."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from support.files import write
from support.gpu.driver_root import DriverRoot
from support.wrapper.installed_wrapper import Installed
from support.wrapper.launcher import Launcher
from support.wrapper.wrapper_node import Node


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed.counting_python_starts(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture(scope="module")
def driver(tmp_path_factory: pytest.TempPathFactory) -> DriverRoot:
    return DriverRoot(tmp_path_factory.mktemp("driver"), count=2)


@pytest.fixture(params=["by python", "by the claim socket"])
def node(request: Any, installed: Installed, driver: DriverRoot, tmp_path: Any) -> Iterator[Node]:
    """Behind the launcher: Python, started each time, or a process that is awake already."""
    node, started = Node(installed, driver, tmp_path), installed.python + ".started"
    if request.param == "by python":
        yield node
        return
    write(started, "")
    with installed.claim_server():
        yield node
    with open(started) as lines:
        # A test that hides the claim socket behind another state-dir is answered by Python.
        assert lines.read() == "" or node.moved


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Launcher:
    return Launcher(tmp_path_factory.mktemp("launcher"))


@pytest.fixture
def launcher(built: Launcher) -> Launcher:
    built.reset()
    return built
