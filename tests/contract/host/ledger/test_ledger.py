"""The ledger: one lock, complete records only, and no other files."""

from __future__ import annotations

import errno
import fcntl
import os
import signal
import subprocess
import tempfile
from typing import Any

import pytest

from support.files import mode_of, write
from support.ledger.samples import GIB, host, left_in, record, shares_of
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.container.identity import Owner
from vcuda_oci.guest import left_open
from vcuda_oci.ledger import claim, liveness
from vcuda_oci.ledger import ledger as ledgers
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Request
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import files


@pytest.fixture
def ledger(tmp_path: Any) -> Ledger:
    return Ledger(f"{tmp_path}/state")


def put(ledger: Ledger, allocation: Any) -> None:
    with ledger:
        ledger.write(allocation, limits.page_of(allocation))


def test_an_empty_place_is_an_empty_ledger(ledger: Ledger) -> None:
    assert ledger.read() == ([], [])
    assert ledger.get("box") is None
    assert not os.path.exists(ledger.state_dir)


def test_record_is_stored_with_its_two_pages(ledger: Ledger) -> None:
    put(ledger, record())
    folder = ledger.state_dir + "/"
    assert left_in(ledger.state_dir) == [
        "allocations/box.json",
        "containers/box",
        "containers/box/limits",
        "containers/box/usage",
    ]
    assert [mode_of(folder + name) for name in left_in(ledger.state_dir)] == [
        0o644,
        0o700,
        0o444,
        0o666,
    ]
    assert mode_of(folder + "containers") == 0o711
    assert mode_of(folder + "allocations") == 0o700
    assert mode_of(folder + "lock") == 0o600
    with open(folder + "containers/box/usage", "rb") as file:
        usage = file.read()
    assert usage == layout.empty_usage_page().ljust(layout.USAGE_SIZE, b"\0")
    with open(folder + "containers/box/limits", "rb") as file:
        page = page_reader.read_limits(file.read())
    gpu = page.gpus[0]
    assert (page.driver_dir, len(page.gpus)) == ("/usr/local/vcuda/driver", 1)
    assert (gpu.uuid, gpu.memory_bytes, gpu.core_percent, gpu.rate_ppm) == (
        "GPU-0",
        4 << 30,
        30,
        300_000,
    )


def test_records_that_were_left_readable_are_closed(ledger: Ledger) -> None:
    put(ledger, record())
    os.chmod(ledger.allocations, 0o755)
    put(ledger, record("second"))
    assert mode_of(ledger.allocations) == 0o700


def test_the_modes_do_not_hang_on_the_umask(ledger: Ledger) -> None:
    before = os.umask(0o077)
    try:
        put(ledger, record())
    finally:
        os.umask(before)
    pages_of = ledger.containers + "/box"
    assert (mode_of(pages_of + "/limits"), mode_of(pages_of + "/usage")) == (0o444, 0o666)


def test_releasing_twice_is_once(ledger: Ledger) -> None:
    put(ledger, record())
    for _ in range(2):
        with ledger:
            ledger.remove("box")
        assert left_in(ledger.state_dir) == []


@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda path: write(path, record().dump()[:50]), "line 1 column"),
        (lambda path: write(path, ""), "line 1 column 1"),
        (lambda path: write(path, b"\xff"), "utf-8"),
        (lambda path: write(path, record("other").dump()), "its id is other"),
        (lambda path: os.chmod(path, 0o664), "other users may write it"),
        (lambda path: os.chmod(path, 0o646), "other users may write it"),
        (lambda path: os.chown(path, 1000, 1000), "other users may write it"),
        (
            lambda path: (os.rename(path, path + ".real"), os.symlink(path + ".real", path)),
            "other users may write it",
        ),
        (lambda path: (os.unlink(path), os.mkdir(path)), "Is a directory"),
    ],
    ids=["cut", "empty", "no text", "another's", "group", "others", "owner", "symlink", "folder"],
)
def test_incomplete_record_is_named_and_ignored(ledger: Ledger, spoil: Any, reason: str) -> None:
    put(ledger, record())
    put(ledger, record("good"))
    path = ledger.allocations + "/box.json"
    spoil(path)
    allocations, broken = ledger.read()
    assert allocations == [record("good")]
    assert [name for name, _ in broken] == [path]
    assert reason in broken[0][1]
    with pytest.raises(VcudaError) as refused:
        ledger.get("box")
    assert str(refused.value) == (
        f"{path}: is not a whole record ({broken[0][1]}); "
        "run 'vcuda release box' if its container has ended"
    )


def test_a_sweep_removes_only_records_without_a_holder(ledger: Ledger) -> None:
    for id in ("dead", "alive", "cut"):
        put(ledger, record(id))
    write(ledger.allocations + "/cut.json", "{")
    write(ledger.allocations + "/alive.json.new", "half")
    write(ledger.containers + "/orphan/usage", "")
    write(ledger.containers + "/stray", "another program's file")
    with ledger:
        assert ledger.sweep(lambda found: found.id == "alive") == ["dead"]
    assert left_in(ledger.state_dir) == [
        "allocations/alive.json",
        "allocations/cut.json",
        *(
            f"containers/{id}{name}"
            for id in ("alive", "cut")
            for name in ("", "/limits", "/usage")
        ),
        "containers/stray",
    ]


def test_the_lock_is_waited_for_and_is_free_again_after_a_kill(ledger: Ledger) -> None:
    locked, signal_end = os.pipe()
    child = os.fork()
    if child == 0:
        with ledger:
            os.write(signal_end, b"x")
            signal.pause()
    os.read(locked, 1)
    with open(ledger.state_dir + "/lock") as file, pytest.raises(BlockingIOError):
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    os.kill(child, signal.SIGKILL)
    put(ledger, record())  # waits for the kernel to drop it
    os.waitpid(child, 0)
    assert shares_of(ledger) == {"box": record().shares}


def test_lock_that_is_never_released_is_one_line(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(ledgers, "LOCK_SECONDS", 0.0)
    with ledger:
        with pytest.raises(VcudaError) as refused, Ledger(ledger.state_dir):
            pass
        assert str(refused.value) == (
            f"{ledger.state_dir}/lock: another process has held the lock for 0 s; "
            "find it with 'fuser' and end it"
        )


def test_a_place_that_cannot_be_written_is_one_line(tmp_path: Any) -> None:
    write(f"{tmp_path}/file", "")
    with pytest.raises(VcudaError, match="cannot be written: Not a directory"):
        Ledger(f"{tmp_path}/file/state").__enter__()


def test_no_change_is_lost_between_processes_that_write_at_once(
    ledger: Ledger, tmp_path: Any
) -> None:
    """Four processes, each adding to one counter under the lock."""
    counter = f"{tmp_path}/counter"
    write(counter, "0")
    children = []
    for _ in range(4):
        child = os.fork()
        if child == 0:
            for _ in range(100):
                with ledger:
                    with open(counter) as file:
                        value = int(file.read())
                    with open(counter, "w") as file:
                        file.write(str(value + 1))
            os._exit(0)
        children.append(child)
    assert [os.waitpid(child, 0)[1] for child in children] == [0] * 4
    with open(counter) as file:
        assert file.read() == "400"


def test_a_lock_is_not_handed_to_the_runtime_that_is_asked(ledger: Ledger, tmp_path: Any) -> None:
    runtime = FakeRuntime(tmp_path / "runc")
    write(
        runtime.path,
        f"#!/bin/sh\nls -l /proc/self/fd >{tmp_path}/fds\necho does not exist >&2\nexit 1",
        0o755,
    )
    with ledger:
        assert not liveness.is_alive(record(runtime=runtime.words))
    assert ledger.state_dir not in (tmp_path / "fds").read_text()


def test_extended_page_is_truncated_when_a_claim_needs_space(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ledger, record("greedy"))
    page = ledger.containers + "/greedy/usage"
    with open(page, "r+b") as file:
        file.write(b"its own")
        file.seek(0, os.SEEK_END)
        file.write(b"x" * 100)
    full = [errno.ENOSPC]  # once
    replace = files.replace

    def on_a_full_disk(path: str, *rest: Any, **more: Any) -> None:
        if full and path.endswith("/usage"):
            raise OSError(full.pop(), "No space left on device", path)
        replace(path, *rest, **more)

    def claim_of(id: str) -> None:
        asked, me = Request.of(30, GIB), os.getpid()
        wanted = claim.Claim(Owner(id, id), asked, ["/nowhere/runc"], me)
        claim.claim(ledger, host(16), wanted, Rules())

    monkeypatch.setattr(files, "replace", on_a_full_disk)
    claim_of("box")
    assert sorted(shares_of(ledger)) == ["box", "greedy"]
    assert os.path.getsize(page) == layout.USAGE_SIZE
    with open(page, "rb") as kept:
        assert kept.read(7) == b"its own"
    # No other program has filled it: there is no room indeed.
    full.append(errno.ENOSPC)
    with pytest.raises(VcudaError, match="No space left on device"):
        claim_of("third")
    assert sorted(shares_of(ledger)) == ["box", "greedy"]
    assert sorted(os.listdir(ledger.containers)) == ["box", "greedy"]


def test_room_behind_the_end_of_a_page_is_freed_though_no_size_shows_it() -> None:
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:  # a tmpfs, as /run/vcuda is
        ledger = Ledger(folder)
        put(ledger, record())
        page = ledger.containers + "/box/usage"
        own = os.stat(page).st_blocks
        assert ledger.cut_back() == []
        for size in (layout.USAGE_SIZE, 5000):  # as it is made, and cut short by its container
            os.truncate(page, size)
            subprocess.run(["fallocate", "-n", "-o", "1MiB", "-l", "1MiB", page], check=True)
            assert (os.path.getsize(page), os.stat(page).st_blocks > own) == (size, True)
            assert ledger.cut_back() == ["box"]
            assert (os.path.getsize(page), os.stat(page).st_blocks <= own) == (size, True)


def test_page_attributes_are_reset_and_too_many_reset_only_its_length(
    ledger: Ledger, monkeypatch: pytest.MonkeyPatch
) -> None:
    put(ledger, record())
    page = ledger.containers + "/box/usage"
    assert ledger.cut_back() == []
    for number in range(3):
        os.setxattr(page, f"user.{number}", b"x" * 100)
    assert ledger.cut_back() == ["box"]
    assert os.listxattr(page) == []

    def of_too_many(_: int) -> list[str]:
        raise OSError(errno.E2BIG, "Argument list too long")

    monkeypatch.setattr(os, "listxattr", of_too_many)
    assert ledger.cut_back() == []
    os.truncate(page, 1 << 30)
    assert ledger.cut_back() == ["box"]
    assert os.path.getsize(page) == layout.USAGE_SIZE


def test_no_link_in_the_place_of_a_page_is_cut(ledger: Ledger, tmp_path: Any) -> None:
    put(ledger, record())
    write(f"{tmp_path}/precious", "x" * 2 * layout.USAGE_SIZE)
    os.unlink(ledger.containers + "/box/usage")
    os.symlink(f"{tmp_path}/precious", ledger.containers + "/box/usage")
    assert ledger.cut_back() == []
    assert os.path.getsize(f"{tmp_path}/precious") == 2 * layout.USAGE_SIZE


def test_a_folder_without_its_own_file_system_has_no_open_file_cut(ledger: Ledger) -> None:
    """It may be any user's."""
    put(ledger, record())
    with open(ledger.containers + "/box/usage", "rb") as page:
        ledger.remove("box")
        assert left_open.cut_back(ledger.state_dir) is False
        assert os.fstat(page.fileno()).st_size == layout.USAGE_SIZE
