"""`vcuda serve` holds containers' files open, so that no process can lease them."""

from __future__ import annotations

import contextlib
import fcntl
import os
import shutil
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from contract.runtime.claim_socket.test_claim_socket import children
from support.files import write
from support.gpu.driver_root import VERSION, DriverRoot
from support.processes import name_of
from support.waiting import until
from support.wrapper.installed_wrapper import Installed
from support.wrapper.wrapper_node import Node, asking
from vcuda_oci.start import claim_socket


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
    with node.installed.claim_server():
        until(lambda: not page_can_be_leased(node, "before"))
        assert node.create(asking(), id="after") == (0, "")
        until(lambda: not page_can_be_leased(node, "after"))


def test_keeper_interrupts_no_claim_that_wakes_it(node: Node) -> None:
    with node.installed.claim_server() as server:
        until(lambda: keepers(server.pid) != [])
        (keeper,) = keepers(server.pid)
        until(lambda: os.sched_getscheduler(keeper) == os.SCHED_BATCH)


def test_an_ended_container_leaves_nothing(node: Node) -> None:
    with node.installed.claim_server() as server:
        assert node.create(asking()) == (0, "")
        until(lambda: not page_can_be_leased(node, "box"))
        (keeper,) = keepers(server.pid)
        assert held_pages(node, keeper)
        with node.ledger:
            node.ledger.remove("box")
        until(lambda: os.listdir(node.ledger.ended) == [])
        until(lambda: held_pages(node, keeper) == [])


def test_no_file_of_the_driver_can_be_leased_nor_one_that_replaces_it(node: Node) -> None:
    shim = node.installed.prefix + "/lib/vcuda/libvcuda.so.1"
    libraries = [f"{node.driver.folder}/libcuda.so.{VERSION}", node.driver.nvml, shim]
    with node.installed.claim_server():
        assert node.create(asking()) == (0, "")
        for path in libraries:
            until(lambda path=path: not can_be_leased(path))
        os.rename(write(libraries[0] + ".new", "newer"), libraries[0])
        assert node.create(asking(), id="second") == (0, "")
        until(lambda: not can_be_leased(libraries[0]))


def test_settings_cannot_be_leased_nor_the_file_that_replaces_them(node: Node) -> None:
    settings, target = node.installed.settings, node.installed.settings + ".target"
    with node.installed.claim_server():
        until(lambda: not can_be_leased(settings))
        os.rename(write(settings + ".new", Path(settings).read_text()), settings)
        until(lambda: not can_be_leased(settings))
        os.rename(settings, target)
        os.symlink(target, settings)
        try:
            until(lambda: not can_be_leased(settings))
            assert not can_be_leased(target)
        finally:
            os.rename(target, settings)


def test_keeper_without_free_descriptors_retains_its_pages(node: Node) -> None:
    assert node.create(asking()) == (0, "")
    with node.installed.claim_server("prlimit", "--nofile=120:120") as server:
        until(lambda: not page_can_be_leased(node, "box"))
        (keeper,) = keepers(server.pid)
        folders = [f"{node.ledger.containers}/many{number}" for number in range(100)]
        for folder in folders:
            os.mkdir(folder)
            write(folder + "/limits", "")
            write(folder + "/usage", "")
        until(lambda: any(not page_can_be_leased(node, f"many{n}") for n in range(100)))
        assert node.create(asking(), id="beyond") == (0, "")  # the keeper looks again
        assert page_can_be_leased(node, "beyond")
        for folder in folders:
            shutil.rmtree(folder)
        until(lambda: not page_can_be_leased(node, "beyond"))
        assert not page_can_be_leased(node, "box")
        assert keepers(server.pid) == [keeper]


def keepers(server: int) -> list[int]:
    return [pid for pid in children(server) if name_of(pid) == claim_socket.PAGE_KEEPER]


def held_pages(node: Node, keeper: int) -> list[str]:
    """Those of containers and of ended ones that the keeper has open."""
    table, opened = f"/proc/{keeper}/fd", []
    for name in os.listdir(table):
        with contextlib.suppress(FileNotFoundError):  # closed meanwhile
            opened.append(os.readlink(f"{table}/{name}"))
    folders = (node.ledger.containers + "/", node.ledger.ended + "/")
    return [path for path in opened if path.startswith(folders)]


# Has a page by its path alone, opens it again and again until it has no name, then adds to it and
# keeps it mapped, in no table of descriptors.
OPEN_LATE = """
import ctypes, os, sys
path = os.open(sys.argv[1], os.O_PATH)
print("ready", flush=True)
while os.fstat(path).st_nlink:
    pass
page = os.open(f"/proc/self/fd/{path}", os.O_RDWR | os.O_NONBLOCK)
ctypes.CDLL(None).mmap(None, ctypes.c_size_t(4096), 3, 1, page, ctypes.c_long(0))
os.pwrite(page, bytes(1 << 20), 1 << 20)
os.close(page)
os.close(path)
print("late", flush=True)
sys.stdin.read()
"""


def test_a_page_that_is_opened_while_it_loses_its_name_takes_no_room(node: Node) -> None:
    state = node.ledger.state_dir
    os.makedirs(state, exist_ok=True)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=64m,mode=755", "none", state], check=True)
    try:
        with node.installed.claim_server():
            assert node.create(asking()) == (0, "")
            until(lambda: not page_can_be_leased(node, "box"))
            page, before = node.ledger.containers + "/box/usage", used(state)
            words = [sys.executable, "-ISc", OPEN_LATE, page]
            with subprocess.Popen(words, stdin=subprocess.PIPE, stdout=subprocess.PIPE) as process:
                assert process.stdin and process.stdout
                assert process.stdout.readline() == b"ready\n"
                with node.ledger:
                    node.ledger.remove("box")
                assert process.stdout.readline() == b"late\n"
                room_comes_back(state, before)
                assert len(os.listdir(node.ledger.ended)) == 1
                process.kill()
            until(lambda: os.listdir(node.ledger.ended) == [])
    finally:
        subprocess.run(["umount", "-l", state], check=True)


def test_a_page_that_a_process_opens_after_its_end_can_be_leased_no_more(node: Node) -> None:
    with node.installed.claim_server():
        assert node.create(asking()) == (0, "")
        until(lambda: not page_can_be_leased(node, "box"))
        path = os.open(node.ledger.containers + "/box/usage", os.O_PATH)
        with node.ledger:
            node.ledger.remove("box")
        try:
            name = f"/proc/self/fd/{path}"
            until(lambda: not can_be_leased(name, os.O_RDWR))
            assert len(os.listdir(node.ledger.ended)) == 1
        finally:
            os.close(path)
        until(lambda: os.listdir(node.ledger.ended) == [])


def room_comes_back(folder: str, before: int) -> None:
    until(lambda: used(folder) < before + (1 << 19))


def used(folder: str) -> int:
    """Bytes of its file system."""
    status = os.statvfs(folder)
    return (status.f_blocks - status.f_bfree) * status.f_frsize


def test_a_keeper_that_was_killed_is_replaced(node: Node) -> None:
    with node.installed.claim_server() as server:
        assert node.create(asking()) == (0, "")
        until(lambda: not page_can_be_leased(node, "box"))
        for pid in children(server.pid):
            os.kill(pid, signal.SIGKILL)
        until(lambda: not page_can_be_leased(node, "box"))
        assert node.create(asking(), id="second") == (0, "")
        until(lambda: not page_can_be_leased(node, "second"))
