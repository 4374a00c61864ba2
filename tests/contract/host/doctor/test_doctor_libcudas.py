"""`vcuda doctor` on processes that hide which libcuda they have loaded."""

from __future__ import annotations

import contextlib
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger.samples import record
from support.needed import skip_or_fail
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_hook.doctor import containers
from vcuda_hook.doctor.finding import ERROR, UNKNOWN, Finding
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits
from vcuda_oci.system import settings_file

# Maps each file so many times; one file alone once, with a write lease on it.
MAP = """
import ctypes, fcntl, os, signal, sys
signal.signal(signal.SIGIO, signal.SIG_IGN)
c = ctypes.CDLL(None)
c.mmap.restype = ctypes.c_void_p
count, paths = int(sys.argv[1]), sys.argv[2:]
for path in paths:
    fd = os.open(path, os.O_RDWR)
    for at in range(count):
        where = ctypes.c_long(8192 * at)
        assert c.mmap(None, ctypes.c_size_t(4096), 1, 1, fd, where) != ctypes.c_void_p(-1).value
if count == len(paths) == 1:
    fcntl.fcntl(fd, fcntl.F_SETLEASE, fcntl.F_WRLCK)
print("mapped", flush=True)
signal.pause()
"""


@pytest.fixture(autouse=True)
def root() -> None:
    if os.geteuid() != 0:
        skip_or_fail("looking into other processes takes root")


@contextlib.contextmanager
def found(folder: Path, files: list[Path], maps: int = 1) -> Iterator[tuple[int, Finding]]:
    """A container's process that has mapped the files, and the doctor's findings on its shim."""
    command = [sys.executable, "-ISc", MAP, str(maps), *map(str, files)]
    with subprocess.Popen(command, stdout=subprocess.PIPE) as guest:
        try:
            assert guest.stdout and guest.stdout.readline() == b"mapped\n"
            runtime = FakeRuntime(f"{folder}/bin")
            runtime.set_state("box", "running", pid=guest.pid)
            ledger = Ledger(f"{folder}/state")
            with ledger:
                box = record("box", runtime=runtime.words)
                ledger.write(box, limits.page_of(box))
            settings = settings_file.parse(f'state-dir = "{folder}/state"', "config.toml")
            _, shim, _ = containers.examine(settings)
            yield guest.pid, shim
        finally:
            guest.kill()


def goes_round(pid: int, file: Path) -> Finding:
    name = os.path.basename(sys.executable)[:15]
    what = f"process {pid} ({name}) has {file} and not the shim: nothing limits it"
    hint = "let it load libcuda.so.1 from the loader's own folders"
    return Finding("shim-not-loaded", ERROR, what, "box", hint)


def test_a_lease_on_its_own_libcuda_hides_no_process(tmp_path: Path) -> None:
    own = tmp_path / "libcuda.so.1"
    own.write_bytes(bytes(4096))
    with found(tmp_path, [own]) as (pid, shim):
        with pytest.raises(BlockingIOError):
            os.open(own, os.O_RDONLY | os.O_NONBLOCK)
        assert shim == goes_round(pid, own)


def test_a_process_with_very_many_mappings_is_reported_as_not_checked(tmp_path: Path) -> None:
    own = tmp_path / ("x" * 200) / ("y" * 200) / "libcuda.so.1"
    own.parent.mkdir(parents=True)
    own.touch()
    os.truncate(own, 8192 * 30000)
    with found(tmp_path, [own], 30000) as (_, shim):
        assert (shim.severity, shim.what) == (UNKNOWN, "its processes cannot be examined")


def test_a_process_with_very_many_libcudas_costs_the_doctor_a_few_reads(tmp_path: Path) -> None:
    files = [tmp_path / f"libcuda.so.{number}" for number in range(100)]
    for path in files:
        path.touch()
        os.truncate(path, 1 << 20)
    before = bytes_read()
    with found(tmp_path, files) as (pid, shim):
        assert bytes_read() - before < 40 << 20
        assert shim.severity == ERROR
        assert f"process {pid} " in shim.what


def bytes_read() -> int:
    with open("/proc/self/io", "rb") as file:
        return int(file.readline().split()[1])
