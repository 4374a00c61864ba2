"""`vcuda serve` keeps files open that containers see, so that no process can lease them."""

from __future__ import annotations

import fcntl
import os
import signal
from typing import Any

import pytest

from unit.driver_root import VERSION, DriverRoot
from unit.ground import write
from unit.installed import Installed
from unit.runtime_node import Node, asking
from unit.test_door import children, wait_until


@pytest.fixture(scope="module")
def installed(tmp_path_factory: pytest.TempPathFactory) -> Installed:
    return Installed(str(tmp_path_factory.mktemp("prefix")))


@pytest.fixture
def node(installed: Installed, tmp_path: Any) -> Node:
    return Node(installed, DriverRoot(tmp_path / "driver", count=2), tmp_path)


def can_be_leased(path: str, flags: int = os.O_RDONLY, kind: int = fcntl.F_WRLCK) -> bool:
    fd = os.open(path, flags | os.O_NONBLOCK)
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
    except BlockingIOError:
        return False
    else:
        return True
    finally:
        os.close(fd)


def page_can_be_leased(node: Node, id: str) -> bool:
    """One of its two, in one of the ways that its container has."""
    folder = f"{node.ledger.containers}/{id}"
    ways = [
        (folder + "/usage", os.O_RDWR, fcntl.F_WRLCK),
        (folder + "/usage", os.O_RDONLY, fcntl.F_RDLCK),
        (folder + "/limits", os.O_RDONLY, fcntl.F_RDLCK),
        (folder + "/limits", os.O_RDONLY, fcntl.F_WRLCK),
    ]
    return any(can_be_leased(*way) for way in ways)


def test_no_page_of_a_container_can_be_leased(node: Node) -> None:
    assert node.create(asking(), id="before") == (0, "")
    assert page_can_be_leased(node, "before")
    with node.installed.door():
        wait_until(lambda: not page_can_be_leased(node, "before"))
        assert node.create(asking(), id="after") == (0, "")
        wait_until(lambda: not page_can_be_leased(node, "after"))


def test_an_ended_container_leaves_nothing(node: Node) -> None:
    with node.installed.door():
        assert node.create(asking()) == (0, "")
        wait_until(lambda: not page_can_be_leased(node, "box"))
        with node.ledger:
            node.ledger.remove("box")
        wait_until(lambda: os.listdir(node.ledger.ended) == [])


def test_no_file_of_the_driver_can_be_leased_nor_one_that_replaces_it(node: Node) -> None:
    shim = node.installed.prefix + "/lib/vcuda/libvcuda.so.1"
    libraries = [f"{node.driver.folder}/libcuda.so.{VERSION}", node.driver.nvml, shim]
    with node.installed.door():
        assert node.create(asking()) == (0, "")
        for path in libraries:
            wait_until(lambda path=path: not can_be_leased(path))  # type: ignore[misc]
        os.rename(write(libraries[0] + ".new", "newer"), libraries[0])
        assert node.create(asking(), id="second") == (0, "")
        wait_until(lambda: not can_be_leased(libraries[0]))


def test_a_keeper_that_was_killed_is_replaced(node: Node) -> None:
    with node.installed.door() as server:
        assert node.create(asking()) == (0, "")
        wait_until(lambda: not page_can_be_leased(node, "box"))
        for pid in children(server.pid):
            os.kill(pid, signal.SIGKILL)
        wait_until(lambda: not page_can_be_leased(node, "box"))
        assert node.create(asking(), id="second") == (0, "")
        wait_until(lambda: not page_can_be_leased(node, "second"))
