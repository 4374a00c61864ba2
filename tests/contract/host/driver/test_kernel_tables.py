"""Names chosen by users in the kernel's tables add no rows and break no reader."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.files import ROOT
from support.needed import skip_or_fail
from vcuda_hook.live import container_processes
from vcuda_oci.guest import process

NAMES = [b"\xff", b"a\rb", b"a\x0cb", b"a\xc2\x85b", b"a b\\"]
READERS = """
from vcuda_hook.live import cgroup_folders
from vcuda_hook.doctor import state as doctor_state
from vcuda_hook.hooks import root_paths
from vcuda_hook.run import watch
from vcuda_oci.guest import left_open
root_paths.host_devices()
root_paths.shared_mounts(os.open("/proc/self", os.O_PATH))
assert cgroup_folders.mounted("nothing", "/") == ""
watch._remove_cgroups("/vcuda-none.1.1")
assert doctor_state.read_host(place).kind == "tmpfs", doctor_state.read_host(place).kind
os.chmod(place, 0o755)
assert left_open._own_tmpfs(place) == os.stat(place).st_dev
"""
# As the static hook starts Python: its own locale, and no site.
MOUNT = f"""
import ctypes, os, sys
sys.path[:0] = ["{ROOT}/oci", "{ROOT}/runtime_hook"]
c, place = ctypes.CDLL(None), sys.argv[1]
c.unshare(0x20000), c.mount(b"none", b"/", None, 0x44000, None)
assert c.mount(b"none", os.fsencode(place), b"tmpfs", 0, None) == 0
"""
MAP = """
import ctypes, os, sys
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
fd = os.open(sys.argv[1], os.O_RDWR)
for i in range(int(sys.argv[2])):
    # Two neighbours of one protection would be one mapping.
    c.mmap(None, ctypes.c_size_t(4096), 1 + 2 * (i % 2), 1, fd, ctypes.c_long(0))
print("mapped", flush=True)
sys.stdin.read()
"""


@pytest.mark.parametrize("name", NAMES, ids=repr)
def test_a_mount_of_an_odd_name_ends_no_reader(tmp_path: Path, name: bytes) -> None:
    if os.geteuid() != 0:
        skip_or_fail("mounting takes root")
    place = os.fsencode(tmp_path) + b"/" + name
    os.mkdir(place)
    done = subprocess.run(
        [sys.executable, "-ISBc", MOUNT + READERS, place],
        env={"PATH": "/usr/bin"},
        stderr=subprocess.PIPE,
        check=False,
    )
    assert (done.returncode, done.stderr) == (0, b"")


def test_a_cgroups_name_that_looks_like_two_rows_is_one(tmp_path: Path) -> None:
    (tmp_path / "7").mkdir()
    (tmp_path / "7/cgroup").write_bytes(b"0::/user.slice/own/x\r0::/docker/4f1c\n")
    found = container_processes.cgroups(7, str(tmp_path))
    assert found == {"0": "/user.slice/own/x\r0::/docker/4f1c"}


@pytest.fixture
def mapper() -> Iterator[list[subprocess.Popen[bytes]]]:
    started: list[subprocess.Popen[bytes]] = []
    yield started
    for guest in started:
        guest.communicate()


def mapping(started: list[subprocess.Popen[bytes]], path: str, count: int) -> int:
    command = [sys.executable, "-ISc", MAP, path, str(count)]
    guest = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    started.append(guest)
    assert guest.stdout and guest.stdout.readline() == b"mapped\n"
    return guest.pid


def test_a_mapped_file_of_an_odd_name_is_seen_as_it_is(
    tmp_path: Path, mapper: list[subprocess.Popen[bytes]]
) -> None:
    folder = tmp_path / "x\rzz-zz r--p 0 00:00 7 "
    folder.mkdir()
    (folder / "libcuda.so.1").write_bytes(b"x")
    pid = mapping(mapper, str(folder / "libcuda.so.1"), 1)
    assert container_processes.examine(pid).foreign == str(folder / "libcuda.so.1")


@pytest.fixture
def two_files(tmp_path: Path) -> Iterator[list[str]]:
    """Of the same number, each in a tmpfs of its own."""
    if os.geteuid() != 0:
        skip_or_fail("mounting takes root")
    places = [str(tmp_path / name) for name in ("ours", "own")]
    for place in places:
        os.mkdir(place)
        subprocess.run(["mount", "-t", "tmpfs", "none", place], check=True)
        Path(place + "/file").write_bytes(bytes(4096))
    yield [place + "/file" for place in places]
    for place in places:
        subprocess.run(["umount", "-l", place], check=True)


def test_mappings_of_another_file_with_the_same_inode_cost_no_check_each(
    two_files: list[str], mapper: list[subprocess.Popen[bytes]], monkeypatch: pytest.MonkeyPatch
) -> None:
    page, own = (os.stat(path) for path in two_files)
    assert page.st_ino == own.st_ino
    pid = mapping(mapper, two_files[1], 5000)
    looked: list[str] = []
    pin = process.Pinned.__init__
    monkeypatch.setattr(
        process.Pinned, "__init__", lambda self, link: (looked.append(link), pin(self, link))[1]
    )
    assert not process.maps(pid, page.st_dev, page.st_ino)
    assert len(looked) < 100
    assert process.maps(pid, own.st_dev, own.st_ino)
