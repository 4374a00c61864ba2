"""A usage page that a process keeps after its container's end takes no other container's room."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from needed import cannot
from unit.ground import host, record
from vcuda_oci.claim import Rules, claim, limits_page
from vcuda_oci.guest import ended_pages, page_file
from vcuda_oci.identity import Owner
from vcuda_oci.ledger import Ledger
from vcuda_oci.request import Request

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
        cannot("mounts take root")
    state = str(tmp_path / "state")
    os.mkdir(state)
    subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4m,mode=755", "none", state], check=True)
    yield Ledger(state)
    subprocess.run(["umount", "-l", state], check=True)


@pytest.fixture
def gone(ledger: Ledger) -> str:
    """The usage page of a container."""
    with ledger:
        ledger.write(record("gone"), limits_page(record("gone"), Rules()))
    return ledger.containers + "/gone/usage"


def start_container(ledger: Ledger, id: str) -> None:
    owner, request = Owner(id, id), Request(1, 1 << 20)
    claim(ledger, host(16), owner, request, ["/nowhere/runc"], os.getpid(), Rules())


def end_container(ledger: Ledger, id: str) -> None:
    with ledger:
        ledger.remove(id)


@pytest.mark.parametrize("how", ["open", "mapped", "on its way"])
def test_a_page_that_a_process_keeps_after_the_end_stops_no_other_container(
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


def test_a_page_that_no_process_keeps_is_removed_with_its_container(
    ledger: Ledger, gone: str
) -> None:
    end_container(ledger, "gone")
    assert os.listdir(ledger.ended) == os.listdir(ledger.containers) == []


def test_a_container_that_comes_back_leaves_no_page_of_before(ledger: Ledger, gone: str) -> None:
    before = os.stat(gone).st_ino
    with ledger:
        ledger.write(record("gone"), limits_page(record("gone"), Rules()))
    assert (os.listdir(ledger.ended), os.stat(gone).st_ino != before) == ([], True)


def test_a_page_whose_replacement_was_killed_stays_its_containers(
    ledger: Ledger, gone: str
) -> None:
    os.link(gone, ledger.ended + "/1")
    before = os.path.getsize(gone)
    ledger.make_room(False)
    assert os.path.getsize(gone) == before
    end_container(ledger, "gone")
    ledger.cut_ended()
    assert os.listdir(ledger.ended) == os.listdir(ledger.containers) == []


def test_a_removed_page_is_opened_by_no_process_that_has_only_its_path(
    ledger: Ledger, gone: str
) -> None:
    if not can_freeze():
        cannot("a tmpfs has flags from Linux 6.6 on")
    path = os.open(gone, os.O_PATH)
    try:
        end_container(ledger, "gone")
        assert os.listdir(ledger.ended) == []
        with pytest.raises(PermissionError):
            os.open(f"/proc/self/fd/{path}", os.O_RDWR)
    finally:
        os.close(path)


def test_a_claim_without_room_cuts_a_frozen_page_without_a_name_that_was_written_to(
    ledger: Ledger, gone: str
) -> None:
    with open(gone, "r+b") as page:
        os.unlink(gone)
        page_file.freeze_open(page.fileno())
        page.write(bytes(1 << 20))
        page.flush()
        assert ledger.make_room(True)
        assert os.fstat(page.fileno()).st_blocks == 0
        if can_freeze():
            with pytest.raises(PermissionError):
                os.open(f"/proc/self/fd/{page.fileno()}", os.O_RDWR)


def can_freeze() -> bool:
    """A tmpfs has flags from Linux 6.6 on."""
    return tuple(map(int, os.uname().release.split(".")[:2])) >= (6, 6)


def test_pages_of_ended_containers_are_where_root_alone_comes(ledger: Ledger, gone: str) -> None:
    assert os.stat(ledger.ended).st_mode & 0o777 == 0o700
    assert ended_pages.cut(ledger.ended, 0) is False
