"""How often the MPS keeper replaces daemons that end, in virtual time."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from support.waiting import until
from vcuda_oci.fences import mps_control, mps_folder, mps_processes
from vcuda_oci.fences.mps_folder import Ready
from vcuda_oci.fences.mps_keeper import MpsKeeper
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import limits
from vcuda_oci.system import kernel_tables

UUID = "GPU-12345678-9"


@pytest.fixture
def short_folder() -> Iterator[str]:
    """Sockets' paths are short: below tmp_path there may be no room for them."""
    with tempfile.TemporaryDirectory(prefix="mps") as folder:
        yield folder


@pytest.fixture
def starts(short_folder: str, monkeypatch: pytest.MonkeyPatch) -> Callable[..., list[float]]:
    """Runs a keeper for some seconds; returns when it started daemons, which end at once."""
    ledger, at, found = Ledger(short_folder), [1000.0], list[float]()
    held = record(shares=[GpuShare(UUID, GIB, 30)], isolation="mps")
    with ledger:
        ledger.write(held, limits.page_of(held))
    mps_folder.want(ledger.state_dir, UUID, "/usr/bin/x", "/usr/lib", "610.10")
    folder = mps_folder.folder_of(ledger.state_dir, UUID)

    def start(*_: object) -> Ready:
        found.append(at[0] - 1000)
        return Ready([1 << 30, 1], [1 << 30, 1], [])  # no process has this pid

    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    monkeypatch.setattr(mps_control, "start", start)
    keeper = MpsKeeper(ledger.state_dir)

    def run(seconds: int, idle: int = 0) -> list[float]:
        at[0] += idle
        for _ in range(seconds * 2):
            keeper._check(folder)
            at[0] += 0.5
        return found

    return run


def test_daemon_that_ends_again_and_again_is_replaced_after_longer_pauses(
    starts: Callable[..., list[float]],
) -> None:
    first = [0, 0.5, 2, 4.5, 9, 17.5, 26, 34.5]
    assert starts(35) == first
    # After a good minute a daemon that has ended is replaced at once.
    assert starts(2, idle=100) == [*first, 135, 136.5]


def test_server_of_a_daemon_that_has_ended_is_not_waited_for(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_control, "_START_SECONDS", 3600.0)
    tree = {"gpu": UUID, "program": "/bin/true", "library": "/usr/lib", "driver": "615.10"}
    with pytest.raises(VcudaError, match="the MPS server does not start"):
        mps_control._start_server(str(tmp_path), tree, 1 << 30, has_spaces=False)


@pytest.mark.parametrize("limits", [b"infM, nan", b"\xb2M, \xff", b"1e999M, 1e999", b","])
def test_limits_that_are_no_numbers_are_those_of_no_container(
    tmp_path: Path, limits: bytes
) -> None:
    program = tmp_path / "control"
    program.write_bytes(b"#!/bin/sh\necho 'n1, vcuda, 0, " + limits + b"'\n")
    program.chmod(0o755)
    tree = {"gpu": UUID, "program": str(program), "library": "", "driver": "615.10"}
    assert mps_control.spaces(str(tmp_path), tree) == {"n1": (0.0, 0)}


def test_daemon_that_hangs_at_its_start_is_ended_before_the_next_is_started(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(mps_control, "_START_SECONDS", 0.2)
    program = tmp_path / "control"
    program.write_text(f"#!/bin/sh\necho $$ >>{tmp_path}/pids\nexec sleep 60\n")
    program.chmod(0o755)
    tree = {"gpu": UUID, "program": str(program), "library": "", "driver": "615.10"}
    with pytest.raises(VcudaError, match="the MPS control daemon does not start"):
        mps_control.start(str(tmp_path), tree)
    pids = (tmp_path / "pids").read_text().split()
    assert (len(pids), [pid for pid in pids if Path("/proc", pid).exists()]) == (3, [])


@pytest.fixture
def unkillable(short_folder: str, monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[str, int]]:
    """A folder, and the pid of a process of it that no signal reaches."""
    place = {"CUDA_MPS_PIPE_DIRECTORY": f"{short_folder}/pipe"}
    with subprocess.Popen(["sleep", "60"], env={**os.environ, **place}) as process:
        monkeypatch.setattr(mps_processes, "_END_SECONDS", 0.1)
        monkeypatch.setattr(mps_processes, "_KILL_SECONDS", 0.1)
        monkeypatch.setattr(mps_processes, "_kill", lambda *_: None)
        monkeypatch.setattr(mps_processes, "all_processes", lambda: [process.pid])
        until(lambda: mps_processes.processes(short_folder))  # its variables are there
        yield short_folder, process.pid
        process.kill()


def test_process_that_outlives_sigkill_is_named_and_not_waited_for(
    unkillable: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pid = unkillable
    with pytest.raises(VcudaError, match=f"pid {pid}: an MPS process has been killed and does not"):
        mps_processes.end(folder)
    monkeypatch.setattr(mps_processes, "_KILL_SECONDS", 3600.0)
    monkeypatch.setattr(mps_processes, "_is_killed", lambda _: True)  # since the first call
    with pytest.raises(VcudaError):
        mps_processes.end(folder)


def test_process_that_is_about_to_end_of_a_kill_is_waited_for(
    unkillable: tuple[str, int], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder, pid = unkillable
    monkeypatch.setattr(mps_processes, "_is_killed", lambda _: True)
    with contextlib.ExitStack() as stack:
        later = threading.Timer(0.1, os.kill, (pid, signal.SIGKILL))
        stack.callback(later.join)
        later.start()
        mps_processes.end(folder)


def test_pending_sigkill_is_read_from_the_processs_status(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for pending, killed in (("0000000000000100", True), ("0000000000004000", False)):
        table = {"SigPnd": "0000000000000000", "ShdPnd": pending}
        monkeypatch.setattr(kernel_tables, "status", lambda _, found=table: found)
        assert mps_processes._is_killed(1) == killed


def test_keeper_names_the_stuck_process_for_the_claims_that_wait(
    unkillable: tuple[str, int], monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    state, pid = unkillable
    ledger = Ledger(state)
    held = record(shares=[GpuShare(UUID, GIB, 30)], isolation="mps")
    with ledger:
        ledger.write(held, limits.page_of(held))
    mps_folder.want(state, UUID, "/usr/bin/x", "/usr/lib", "610.10")
    folder = mps_folder.folder_of(state, UUID)
    monkeypatch.setattr(mps_processes, "processes", lambda _: [pid])
    keeper, rounds = MpsKeeper(state), iter([True, False])
    monkeypatch.setattr(os, "getppid", lambda: 1 if next(rounds) else 2)
    monkeypatch.setattr(signal, "pthread_sigmask", lambda *_: None)
    monkeypatch.setattr(signal, "sigtimedwait", lambda *_: None)
    keeper.run(1)
    assert f"pid {pid}: an MPS process has been killed and does not end" in capsys.readouterr().err
    assert f"pid {pid}" in mps_folder.failure(folder)


def test_daemon_that_hangs_is_asked_again_after_half_a_minute(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    at, asked = [1000.0], list[float]()

    def hang(*_: object) -> None:
        asked.append(at[0] - 1000)
        raise subprocess.TimeoutExpired("control", 5)

    monkeypatch.setattr(time, "monotonic", lambda: at[0])
    monkeypatch.setattr(mps_control, "clients", hang)
    keeper, now = MpsKeeper(str(tmp_path)), Ready([1, 1], [1, 1], [])
    for _ in range(62):
        with contextlib.suppress(subprocess.TimeoutExpired):
            keeper._watch(str(tmp_path), {}, now)
        at[0] += 1
    assert asked == [0, 30, 60]
