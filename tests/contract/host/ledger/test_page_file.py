"""Changes that a container's root makes to its usage page are reverted and block no other."""

from __future__ import annotations

import fcntl
import os
import stat
import struct
import tempfile
from collections.abc import Callable, Iterator

import pytest

from support.ledger.samples import left_in, record
from support.needed import skip_or_fail
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import layout, limits

# Source: linux/fs.h.
GET_FLAGS, SET_FLAGS = 0x80086601, 0x40086602
FLAGS = {"immutable": 0x10, "append only": 0x20}


def flags_of(path: str, flags: int | None = None) -> int:
    """The inode flags of a file, after setting them to `flags` if given."""
    fd = os.open(path, os.O_RDONLY)
    try:
        if flags is not None:
            fcntl.ioctl(fd, SET_FLAGS, struct.pack("=II", flags, 0))
        (found,) = struct.unpack_from("=I", fcntl.ioctl(fd, GET_FLAGS, bytes(8)))
        return int(found)
    finally:
        os.close(fd)


@pytest.fixture
def ledger() -> Iterator[Ledger]:
    """On a tmpfs, as /run/vcuda is."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        made = Ledger(folder)
        for id in ("hostile", "neighbour"):
            put(made, id)
        yield made
        for folder, _, files in os.walk(made.containers):
            for name in files:
                flags_of(f"{folder}/{name}", 0)


def put(ledger: Ledger, id: str) -> None:
    with ledger:
        ledger.write(record(id), limits.page_of(record(id)))


@pytest.fixture(params=FLAGS)
def freeze(request: pytest.FixtureRequest, ledger: Ledger) -> Callable[[], str]:
    """`chattr +i` or `+a` on the usage page of "hostile": its path."""
    page = f"{ledger.containers}/hostile/usage"
    try:
        flags_of(page, 0)
    except OSError:
        skip_or_fail("this kernel's tmpfs has no flags")

    def set_it() -> str:
        flags_of(page, FLAGS[request.param])
        return page

    return set_it


def test_extended_pages_are_all_truncated_beside_a_frozen_one(
    ledger: Ledger, freeze: Callable[[], str]
) -> None:
    neighbour = f"{ledger.containers}/neighbour/usage"
    for page in (f"{ledger.containers}/hostile/usage", neighbour):
        os.truncate(page, 1 << 20)
    page = freeze()
    assert sorted(ledger.cut_back()) == ["hostile", "neighbour"]
    assert os.path.getsize(page) == os.path.getsize(neighbour) == layout.USAGE_SIZE
    assert flags_of(page) & (FLAGS["immutable"] | FLAGS["append only"]) == 0
    assert ledger.cut_back() == []


def test_restarted_container_replaces_its_frozen_page(
    ledger: Ledger, freeze: Callable[[], str]
) -> None:
    with open(f"{ledger.containers}/hostile/usage", "r+b") as file:
        file.write(b"its own")
    page = freeze()
    put(ledger, "hostile")
    with open(page, "rb") as file:
        assert file.read().startswith(layout.empty_usage_page())


def test_a_frozen_page_is_released_and_swept(ledger: Ledger, freeze: Callable[[], str]) -> None:
    freeze()
    with ledger:
        ledger.remove("hostile")
    put(ledger, "hostile")
    freeze()
    # As the launcher leaves it, which removes what it can.
    os.unlink(ledger.allocations + "/hostile.json")
    with ledger:
        assert ledger.sweep(lambda _: False) == ["neighbour"]
    assert left_in(ledger.state_dir) == []


def test_mode_and_owner_of_a_page_are_restored(ledger: Ledger) -> None:
    page = f"{ledger.containers}/hostile/usage"
    before = os.stat(page)
    os.chmod(page, 0o4755)
    os.chown(page, 1000, 1000)
    os.chmod(page, 0o6755)
    ledger.cut_back()
    after = os.stat(page)
    assert (after.st_mode, after.st_uid, after.st_gid) == (
        before.st_mode,
        before.st_uid,
        before.st_gid,
    )
    assert stat.S_IMODE(after.st_mode) == 0o666
