"""Fixtures: one Kubernetes for all tests of this folder."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from cluster.kubernetes import binaries, engine
from cluster.kubernetes.node import Node
from engines.conftest import files, host_is_left_as_it_was, session_folder
from support.engines.base import Files
from support.needed import skip_or_fail
from support.product import missing

# A folder with the Prometheus operator's own definitions, such as
# example/prometheus-operator-crd of its repository.
DEFINITIONS = "PROMETHEUS_CRDS"
NO_DEFINITIONS = f"no definitions given: set {DEFINITIONS} to a folder with those of the operator"
__all__ = ["files", "host_is_left_as_it_was", "session_folder"]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Skip these tests where no Kubernetes is given, and those of claims where no engine is that
    injects CDI devices. A mark on all gives one line a file, not one a test; unlike a missing
    engine it is no failure in CI."""
    here = os.path.dirname(os.path.abspath(__file__))
    for item in items:
        if not item.path.is_relative_to(here):
            continue
        if not binaries.given():
            item.add_marker(pytest.mark.skip(reason=binaries.NOT_GIVEN))
        elif item.path.name == "test_monitoring.py" and DEFINITIONS not in os.environ:
            item.add_marker(pytest.mark.skip(reason=NO_DEFINITIONS))
        elif item.path.parent.name == "claims" and not engine.injects_cdi():
            item.add_marker(pytest.mark.skip(reason=engine.NOT_GIVEN))


@pytest.fixture(scope="session")
def programs() -> str:
    return binaries.folder()


@pytest.fixture(scope="session")
def started(programs: str, files: Files, session_folder: str) -> Iterator[Node]:
    for reason in (missing(), engine.node_engine().missing()):
        if reason is not None:
            skip_or_fail(reason)
    folder = os.path.join(session_folder, "cluster")
    os.mkdir(folder)
    node = Node(files, folder, programs)
    yield node
    node.close()


@pytest.fixture
def node(started: Node) -> Iterator[Node]:
    """The node without a pod; a test's own pods are deleted after it."""
    yield started
    started.kubectl("delete", "pods", "--all", "--timeout=50s")
    started.wait(lambda: started.held() == {}, "shares of deleted pods")
