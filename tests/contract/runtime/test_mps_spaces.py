"""Namespaces of MPS follow the allocations, from whatever a kill has left in a real daemon."""

from __future__ import annotations

import os
import signal
import tempfile
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.fences import mps_control, mps_folder, mps_spaces
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import mps
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import limits

Started = tuple[Ledger, str, dict[str, str]]
LEFT = mps.SPACE + "0000000000"


@pytest.fixture
def started() -> Iterator[Started]:
    """A ledger, and the folder and tree of a daemon of driver 615 that serves."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="sp") as place:
        gpu = SoftGpu(Path(place), "--driver-version", "615.10")
        uuid = gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
        ledger, program = Ledger(f"{place}/s"), str(gpu.root / "usr/bin/nvidia-cuda-mps-control")
        mps_folder.want(ledger.state_dir, uuid, program, str(gpu.libraries), "615.10")
        folder = mps_folder.folder_of(ledger.state_dir, uuid)
        for part in ("pipe", "log"):
            os.makedirs(f"{folder}/{part}")
        tree = mps_folder.wanted(folder)
        assert tree is not None
        mps_folder.write_ready(folder, mps_control.start(folder, tree))
        try:
            yield ledger, folder, tree
        finally:
            mps_folder.end_all(folder)


def hold(ledger: Ledger, tree: dict[str, str], id: str, core: int) -> Allocation:
    held = record(id, isolation="mps", shares=[GpuShare(tree["gpu"], GIB + 1, core)])
    with ledger:
        ledger.write(held, limits.page_of(held))
    return held


def without_limits(folder: str, tree: dict[str, str], name: str) -> None:
    mps_control.require_v3(
        folder, tree, "namespace", "create", name, f"--server={mps_folder.SERVER}"
    )


def left_over(folder: str, tree: dict[str, str], name: str) -> None:
    mps_control.add_space(folder, tree, LEFT, True, mps.Limits(50, 64), 0)


def noted_but_not_made(folder: str, tree: dict[str, str], name: str) -> None:
    now = mps_folder.ready(folder)
    assert now is not None
    mps_folder.write_ready(folder, now.replaced(spaces=[name, LEFT]))


@pytest.mark.parametrize("kill", [without_limits, left_over, noted_but_not_made])
def test_kill_at_any_step_leaves_what_the_next_keeper_sets_right(
    started: Started, kill: Callable[[str, dict[str, str], str], None]
) -> None:
    ledger, folder, tree = started
    held = [hold(ledger, tree, "one", 30), hold(ledger, tree, "two", 70)]
    names = [mps.space_of(one) for one in held]
    kill(folder, tree, names[0])
    mps_spaces.follow(ledger, folder)
    mib = 1024 + 1 + 512  # rounded up, and contexts
    expected = {names[0]: (30.0, mib << 20), names[1]: (70.0, mib << 20)}
    assert mps_control.spaces(folder, tree) == expected
    now = mps_folder.ready(folder)
    assert now is not None
    assert (now.spaces, mps_spaces.is_in_step(now, held)) == (sorted(names), True)


def test_container_with_other_limits_has_another_namespace(started: Started) -> None:
    ledger, folder, tree = started
    first = mps.space_of(hold(ledger, tree, "one", 30))
    mps_spaces.follow(ledger, folder)
    second = mps.space_of(hold(ledger, tree, "one", 40))
    mps_spaces.follow(ledger, folder)
    assert first != second
    assert mps_control.spaces(folder, tree).keys() == {second}


def test_hanging_daemon_delays_no_end_of_a_container(started: Started) -> None:
    ledger, folder, tree = started
    hold(ledger, tree, "one", 30)
    now = mps_folder.ready(folder)
    assert now is not None
    os.kill(now.daemon[0], signal.SIGSTOP)
    try:
        with mps_folder.lock(ledger.state_dir):  # the keeper waits for the daemon
            began = time.monotonic()
            mps_spaces.sweep(ledger)
        assert time.monotonic() - began < 5  # it would wait 10 s for the lock
    finally:
        os.kill(now.daemon[0], signal.SIGCONT)
    assert now.lives


def test_namespace_that_cannot_be_removed_keeps_no_container_waiting(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, folder, tree = started
    left_over(folder, tree, LEFT)
    space = mps.space_of(hold(ledger, tree, "one", 30))
    remove = mps_control.remove_space

    def refused(folder: str, tree: dict[str, str], _: str) -> None:
        remove(folder, tree, "n1")  # the daemon has no such namespace

    monkeypatch.setattr(mps_control, "remove_space", refused)
    with pytest.raises(VcudaError, match="namespace delete"):
        mps_spaces.follow(ledger, folder)
    now = mps_folder.ready(folder)
    assert now is not None
    assert now.spaces == [space]


def test_daemon_that_takes_no_limits_admits_no_container(
    started: Started, monkeypatch: pytest.MonkeyPatch
) -> None:
    ledger, folder, tree = started
    hold(ledger, tree, "one", 30)
    monkeypatch.setattr(mps_control, "add_space", lambda *_: None)
    with pytest.raises(VcudaError, match="MPS has not taken the limits of namespace n"):
        mps_spaces.follow(ledger, folder)
    now = mps_folder.ready(folder)
    assert now is not None
    assert now.spaces == []


def test_program_that_knows_no_version_three_runs_as_version_two(started: Started) -> None:
    _, folder, tree = started
    mps_folder.end_all(folder)
    program = f"{tree['program']}-older"
    with open(program, "w") as file:
        file.write(f'#!/bin/sh\n[ "$2" = -p ] && exit 1\nexec {tree["program"]} "$@"\n')
    os.chmod(program, 0o755)
    found = mps_control.start(folder, {**tree, "program": program})
    assert found.spaces is None and found.lives
