"""The MPS keeper makes static partitions with a real daemon, wherever an earlier one was killed."""

from __future__ import annotations

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from support.ledger.samples import GIB, record
from support.softgpu.softgpu_host import SoftGpu
from vcuda_oci.fences import (
    mps_claim,
    mps_control,
    mps_folder,
    mps_partitions,
    mps_processes,
    mps_spaces,
)
from vcuda_oci.fences.mps_keeper import MpsKeeper
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import mps
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.pages import limits
from vcuda_oci.system.own_lock import FolderLock

LAYOUT = [50, 25, 25]
DRIVERS = ["590.10", "620.10"]  # MPS of version 2, and of version 3
SEED = ("--seed", "1")


class Killed(BaseException):
    pass


@contextlib.contextmanager
def served_gpu(driver: str) -> Iterator[tuple[Ledger, str, Callable[..., None]]]:
    """A ledger, a GPU's UUID, and what asks for the GPU's daemon, after an upgrade to the driver
    that it may be given."""
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kp")
        place = stack.enter_context(temporary)
        gpu = SoftGpu(Path(place), *SEED, "--driver-version", driver)
        uuid = gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
        program = str(gpu.root / "usr/bin/nvidia-cuda-mps-control")
        ledger = Ledger(f"{place}/s")
        stack.callback(mps_folder.end_all, mps_folder.folder_of(ledger.state_dir, uuid))

        def want(upgraded: str = "") -> None:
            if upgraded:
                gpu.order("create", "--force", *SEED, "--driver-version", upgraded)
            version = upgraded or driver
            mps_folder.want(ledger.state_dir, uuid, program, str(gpu.libraries), version)

        yield ledger, uuid, want


def hold(ledger: Ledger, uuid: str, number: int, layout: list[int]) -> Allocation:
    held = record(
        str(number), isolation="mps", shares=[GpuShare(uuid, GIB, 10)],
        partition=number, partitions=layout,
    )  # fmt: skip
    with ledger:
        ledger.write(held, limits.page_of(held))
    return held


@pytest.mark.parametrize("driver", DRIVERS)
def test_kill_at_any_step_leaves_what_the_next_keeper_sets_right(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    run, left = mps_control._run, [0]

    def dies(folder: str, tree: dict[str, str], words: list[str], text: str) -> tuple[int, str]:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return run(folder, tree, words, text)

    monkeypatch.setattr(mps_control, "_run", dies)
    with served_gpu(driver) as (ledger, uuid, want):
        held = [hold(ledger, uuid, number, LAYOUT) for number in (2, 1)]
        folder, step, was_killed = mps_folder.folder_of(ledger.state_dir, uuid), 0, True
        while was_killed:
            step += 1
            want()
            left[0] = step
            was_killed = False
            try:
                MpsKeeper(ledger.state_dir)._check(folder)
            except Killed:
                was_killed = True
            left[0] = 0
            _check_all(ledger, folder, driver, [mps.space_of(one) for one in held])
            mps_folder.end_all(folder)
            shutil.rmtree(folder)
        assert step > 9


@pytest.mark.parametrize("driver", DRIVERS)
def test_killed_server_without_its_partitions_leaves_no_file_in_dev_shm(
    monkeypatch: pytest.MonkeyPatch, driver: str
) -> None:
    monkeypatch.setattr(mps_processes, "_END_SECONDS", -1.0)  # it is killed at once
    with served_gpu(driver) as (ledger, uuid, want):
        folder = mps_folder.folder_of(ledger.state_dir, uuid)
        hold(ledger, uuid, 1, [98, 1])
        want()
        with pytest.raises(VcudaError, match="less than one of the GPU's chunks"):
            MpsKeeper(ledger.state_dir)._check(folder)
        pids = mps_processes.processes(folder)
        name = f"cuda.shm.0.{pids[-1]:x}.1"  # the name that it has before driver 580
        Path(mps_folder.SHARED, name).touch(mode=0o600)
        with ledger:
            ledger.remove("1")
        mps_spaces.sweep(ledger)
        assert not os.path.exists(f"{mps_folder.SHARED}/{name}")


@pytest.mark.parametrize(
    ("before", "driver", "upgraded"),
    [
        *(([], driver, "") for driver in DRIVERS),
        *(([100], driver, "") for driver in DRIVERS),
        ([], "580.95", "590.10"),
        ([], "580.95", "620.10"),
        ([100], "590.10", "620.10"),
    ],
)
def test_daemon_of_an_earlier_layout_serves_no_container_of_the_next_one(
    before: list[int], driver: str, upgraded: str, capfd: pytest.CaptureFixture[str]
) -> None:
    with served_gpu(driver) as (ledger, uuid, want):
        keeper = MpsKeeper(ledger.state_dir)
        folder = mps_folder.folder_of(ledger.state_dir, uuid)
        hold(ledger, uuid, len(before), before)
        want()
        keeper._check(folder)
        # The last container ends, the driver is replaced, and another container starts, before the
        # keeper has seen it.
        with ledger:
            ledger.remove(str(len(before)))
        held = hold(ledger, uuid, 1, LAYOUT)
        want(upgraded)
        assert mps_claim._socket(folder, held) is None
        keeper._check(folder)
        assert mps_claim._socket(folder, held) is not None
        _check_all(ledger, folder, upgraded or driver, [mps.space_of(held)])
        assert "has ended" not in capfd.readouterr().err


@pytest.mark.parametrize("before", [None, [100]])
def test_keeper_that_waits_for_an_earlier_one_ends_no_daemon_of_it(
    monkeypatch: pytest.MonkeyPatch, before: list[int] | None
) -> None:
    lock, at = mps_folder.lock, list[list[int]]()
    with served_gpu("590.10") as (ledger, uuid, want):
        folder = mps_folder.folder_of(ledger.state_dir, uuid)
        earlier, later = MpsKeeper(ledger.state_dir), MpsKeeper(ledger.state_dir)
        want()
        if before:
            hold(ledger, uuid, 1, before)
            earlier._check(folder)
            with ledger:
                ledger.remove("1")
        hold(ledger, uuid, 1, LAYOUT)

        def waits(state_dir: str) -> FolderLock:
            monkeypatch.setattr(mps_folder, "lock", lock)
            earlier._check(folder)
            now = mps_folder.ready(folder)
            assert now and now.layout == LAYOUT
            at.append(now.daemon)
            return lock(state_dir)

        monkeypatch.setattr(mps_folder, "lock", waits)
        later._check(folder)
        now = mps_folder.ready(folder)
        assert now and [now.daemon] == at


@pytest.mark.parametrize(
    ("given", "driver", "line"),
    [
        ("580.95", "580.95", "the MPS control daemon does not start, or knows no static partition"),
        ("590.10", "580.95", "the MPS control daemon does not start, or knows no static partition"),
        ("615.10", "590.10", ""),
    ],
)
def test_program_of_another_version_than_the_driver_gives_partitions_or_none_at_all(
    given: str, driver: str, line: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with served_gpu(driver) as (ledger, uuid, _):
        folder = mps_folder.folder_of(ledger.state_dir, uuid)
        program = f"{Path(ledger.state_dir).parent}/driver/usr/bin/nvidia-cuda-mps-control"
        mps_folder.want(ledger.state_dir, uuid, program, "", given)
        held = hold(ledger, uuid, 1, LAYOUT)
        with pytest.raises(VcudaError, match=line) if line else contextlib.nullcontext():
            MpsKeeper(ledger.state_dir)._check(folder)
        assert (mps_claim._socket(folder, held) is None) == bool(line)
        assert bool(mps_processes.processes(folder)) == (not line)


def _check_all(ledger: Ledger, folder: str, driver: str, spaces: list[str]) -> None:
    """After one round of a keeper that is not killed."""
    MpsKeeper(ledger.state_dir)._check(folder)
    now, tree = mps_folder.ready(folder), mps_folder.wanted(folder)
    assert now is not None and tree is not None
    has_names = mps.has_namespaces(driver)
    held = sorted(spaces) if has_names else None
    assert (now.partitions, now.binds, now.spaces) == ([64, 32, 32], has_names, held)
    if has_names:
        assert mps_control.spaces(folder, tree).keys() == set(spaces)
        listed = mps_control._ask_v3(folder, tree, "sm-partition", "list", "--format=csv,noheader")
        rows = [line.split(",") for line in listed.splitlines()]
        assert [(row[2], row[3]) for row in rows] == [("p1", "8"), ("p2", "4"), ("p3", "4")]
        ids = [row[7] for row in rows]
    else:
        rows = mps_partitions._rows_v2(folder, tree)[1:]
        assert [row[1:] for row in rows] == [
            [*one, "No"] for one in (["8", "64"], *[["4", "32"]] * 2)
        ]
        ids = [row[0] for row in rows]
    for number, id in enumerate(ids, 1):
        named = Path(mps_folder.partition_file(folder, number)).read_text()
        assert named == f"{tree['gpu']}/{id}"
    assert sorted(mps_processes.processes(folder)) == sorted([now.daemon[0], now.server[0]])
