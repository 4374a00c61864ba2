"""A usage page held by a process after its container's end takes no room from others."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger.samples import host, record
from support.needed import skip_or_fail
from vcuda_oci.container.identity import Owner
from vcuda_oci.guest import ended_pages, file_handle
from vcuda_oci.ledger.claim import Claim, claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.process import confine, rights

# A process that was handed a page fills the file system by it, again with each line that it reads.
# No table of the kernel shows which file is mapped or on its way.
KEEP = """
import ctypes, os, socket, sys
path, how = sys.argv[1:]
libc = ctypes.CDLL(None)
libc.mmap.restype = ctypes.c_void_p
ours, others = socket.socketpair()

def fill(page):
    try:
        while True:
            os.pwrite(page, bytes(1 << 16), os.fstat(page).st_size)
    except OSError:
        pass

def put_away(page):
    if how == "on its way":
        socket.send_fds(ours, [b"x"], [page])
    elif how == "mapped":
        libc.mmap(None, ctypes.c_size_t(4096), 3, 1, page, ctypes.c_long(0))
    os.close(page)

page = os.open(path, os.O_RDWR)
fill(page)
if how != "open":
    put_away(page)
print("full", flush=True)
for _ in sys.stdin:
    if how == "on its way":
        page = socket.recv_fds(others, 1, 1)[1][0]
    if how != "mapped":
        fill(page)
    if how == "on its way":
        put_away(page)
    print("full", flush=True)
"""


@pytest.fixture
def ledger(tmp_path: Path) -> Iterator[Ledger]:
    """On a file system of 4 MiB, as the packages mount one."""
    if os.geteuid() != 0:
        skip_or_fail("mounts take root")
    state = str(tmp_path / "state")
    os.mkdir(state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "none", state], check=True)
    yield Ledger(state)
    subprocess.run(["umount", "-l", state], check=True)


@pytest.fixture
def gone(ledger: Ledger) -> str:
    """The usage page of a container."""
    with ledger:
        ledger.write(record("gone"), limits.page_of(record("gone")))
    return ledger.containers + "/gone/usage"


def start_container(ledger: Ledger, id: str) -> None:
    owner, request = Owner(id, id), Request.of(1, 1 << 20)
    claim(ledger, host(16), Claim(owner, request, ["/nowhere/runc"], os.getpid()), Rules())


def end_container(ledger: Ledger, id: str) -> None:
    with ledger:
        ledger.remove(id)


@pytest.mark.parametrize("how", ["open", "mapped", "on its way"])
def test_page_held_after_the_end_blocks_no_other_container(
    ledger: Ledger, gone: str, how: str
) -> None:
    words = [sys.executable, "-ISc", KEEP, gone, how]
    with subprocess.Popen(
        words, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True, bufsize=1
    ) as keeper:
        assert keeper.stdin and keeper.stdout
        assert keeper.stdout.readline() == "full\n"
        assert os.statvfs(ledger.state_dir).f_bavail == 0
        end_container(ledger, "gone")
        for number in range(3):
            start_container(ledger, f"box{number}")
            end_container(ledger, f"box{number}")
            print(file=keeper.stdin)
            assert keeper.stdout.readline() == "full\n"
        assert len(os.listdir(ledger.ended)) == 1
        keeper.kill()
    start_container(ledger, "last")
    with ledger:
        ledger.sweep(lambda _: True)
    assert os.listdir(ledger.ended) == []


def test_unused_page_is_removed_with_its_container(ledger: Ledger, gone: str) -> None:
    end_container(ledger, "gone")
    assert os.listdir(ledger.ended) == os.listdir(ledger.containers) == []


def test_restarted_container_leaves_no_old_page(ledger: Ledger, gone: str) -> None:
    before = os.stat(gone).st_ino
    with ledger:
        ledger.write(record("gone"), limits.page_of(record("gone")))
    assert (os.listdir(ledger.ended), os.stat(gone).st_ino != before) == ([], True)


def test_a_page_stays_its_containers_when_its_replacement_was_killed(
    ledger: Ledger, gone: str
) -> None:
    os.symlink(".", file_handle.of(gone, ledger.ended))
    before = os.path.getsize(gone)
    ledger.make_room(False)
    assert os.path.getsize(gone) == before
    end_container(ledger, "gone")
    ledger.cut_ended()
    assert os.listdir(ledger.ended) == os.listdir(ledger.containers) == []


def test_a_page_that_is_opened_while_it_loses_its_name_takes_no_room(
    ledger: Ledger, gone: str
) -> None:
    """The process opens it by an O_PATH descriptor at the first moment without a name."""
    page = os.open(gone, os.O_PATH)
    ours, others = socket.socketpair()

    def open_late(*_: object) -> None:
        if os.fstat(page).st_nlink == 0:
            sys.setprofile(None)
            add_and_hide(ours, os.open(f"/proc/self/fd/{page}", os.O_RDWR))

    with ours, others:
        sys.setprofile(open_late)
        end_container(ledger, "gone")
        assert sys.getprofile() is None
        os.close(page)
        add_and_hide(ours, socket.recv_fds(others, 1, 1)[1][0])
        assert not room_is_back(ledger)
        ledger.make_room(True)
        assert room_is_back(ledger)
    ledger.cut_ended()
    assert os.listdir(ledger.ended) == []


def add_and_hide(ours: socket.socket, page: int) -> None:
    """Add 2 MiB to a page, and keep it in no table of descriptors: sent and not yet received."""
    os.pwrite(page, bytes(2 << 20), 0)
    socket.send_fds(ours, [b"x"], [page])
    os.close(page)


def room_is_back(ledger: Ledger) -> bool:
    return os.statvfs(ledger.state_dir).f_bavail * 4096 > 3 << 20


def test_page_that_cannot_be_recorded_retains_its_name(ledger: Ledger, gone: str) -> None:
    with open(gone, "r+b"), ledger:
        os.unlink(ledger.allocations + "/gone.json")
        status = os.statvfs(ledger.state_dir)
        limit_inodes(ledger, status.f_files - status.f_ffree)
        ledger.sweep(lambda _: True)
        assert (os.path.exists(gone), os.listdir(ledger.ended)) == (True, [])
        limit_inodes(ledger, status.f_files)
        ledger.sweep(lambda _: True)
        assert (os.path.exists(gone), len(os.listdir(ledger.ended))) == (False, 1)


def limit_inodes(ledger: Ledger, most: int) -> None:
    options = f"remount,nr_inodes={most}"
    subprocess.run(["mount", "-o", options, ledger.state_dir], check=True)


@pytest.mark.parametrize("kind", ["ext4", "overlay"])
def test_pages_on_other_file_systems_end_too(tmp_path: Path, kind: str) -> None:
    """By its handle on ext4; an overlay gives none, so its page is not found without a name."""
    if os.geteuid() != 0:
        skip_or_fail("mounts take root")
    state = tmp_path / "state"
    state.mkdir()
    if kind == "ext4":
        image = tmp_path / "image"
        image.touch()
        os.truncate(image, 8 << 20)
        subprocess.run(["mkfs.ext4", "-q", image], check=True)
        subprocess.run(["mount", "-o", "loop", image, state], check=True)
    else:
        folders = [tmp_path / name for name in ("lower", "upper", "work")]
        for folder in folders:
            folder.mkdir()
        options = "lowerdir={},upperdir={},workdir={}".format(*folders)
        subprocess.run(["mount", "-t", "overlay", "-o", options, "none", state], check=True)
    try:
        ledger = Ledger(str(state))
        with ledger:
            ledger.write(record("gone"), limits.page_of(record("gone")))
        with open(ledger.containers + "/gone/usage", "r+b") as page:
            end_container(ledger, "gone")
            page.truncate(1 << 20)
            ledger.cut_ended()
            found = os.fstat(page.fileno()).st_size == layout.USAGE_SIZE
            assert (found, len(os.listdir(ledger.ended))) == ((kind == "ext4",) * 2)
        ledger.cut_ended()
        assert os.listdir(ledger.ended) == os.listdir(ledger.containers) == []
    finally:
        subprocess.run(["umount", "-l", state], check=True)


@pytest.mark.parametrize("name", ["agent", "claim_socket", "page_keeper"])
def test_processes_of_the_agent_reach_pages_of_ended_containers(
    ledger: Ledger, gone: str, name: str
) -> None:
    """With the capabilities and the filter of system calls that each gives itself."""
    own = {"agent": rights.AGENT, "page_keeper": rights.KEEPERS["page_keeper"]}
    own["claim_socket"] = rights.OF["vcuda_plugin.agent.process.claim_socket"]
    with open(gone, "r+b") as page:
        end_container(ledger, "gone")
        page.truncate(1 << 20)
        child = os.fork()
        if not child:
            try:
                confine.confine(rights.FORK_SERVER)
                confine.confine(own[name])
                ledger.cut_ended()
            finally:
                os._exit(0)
        os.waitpid(child, 0)
        assert os.fstat(page.fileno()).st_size == layout.USAGE_SIZE


def test_a_claim_without_room_cuts_a_frozen_nameless_page_that_has_grown(
    ledger: Ledger, gone: str
) -> None:
    with open(gone, "r+b") as page:
        end_container(ledger, "gone")
        page.write(bytes(1 << 20))
        page.flush()
        subprocess.run(["chattr", "+i", f"/proc/self/fd/{page.fileno()}"], check=False)
        assert ledger.make_room(False)
        assert os.fstat(page.fileno()).st_blocks == 0


def test_folder_of_ended_pages_is_open_to_root_only(ledger: Ledger, gone: str) -> None:
    assert os.stat(ledger.ended).st_mode & 0o777 == 0o700
    assert ended_pages.cut(ledger.ended, 0) is False
