"""The MPS keeper makes static partitions with a real daemon, wherever an earlier one was killed."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from pathlib import Path

import pytest

from support.samples import GIB, record
from support.softgpu_host import SoftGpu
from vcuda_oci.ledger import mps_control, mps_folder, mps_processes
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import mps
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import limits
from vcuda_oci.start.mps_keeper import MpsKeeper

LAYOUT = [50, 25, 25]


class Killed(BaseException):
    pass


def test_kill_at_any_step_leaves_what_the_next_keeper_sets_right(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    run, left = mps_control._run, [0]

    def dies(folder: str, tree: dict[str, str], words: list[str], text: str) -> tuple[int, str]:
        left[0] -= 1
        if left[0] == 0:
            raise Killed
        return run(folder, tree, words, text)

    monkeypatch.setattr(mps_control, "_run", dies)
    with contextlib.ExitStack() as stack:
        temporary = tempfile.TemporaryDirectory(dir="/dev/shm", prefix="kp")
        place = stack.enter_context(temporary)
        gpu = SoftGpu(Path(place), "--driver-version", "620.10")
        uuid = gpu.smi("--query-gpu=uuid", "--format=csv,noheader").split()[0]
        program = str(gpu.root / "usr/bin/nvidia-cuda-mps-control")
        ledger = Ledger(f"{place}/s")
        held = [
            record(
                str(number), isolation="mps", shares=[GpuShare(uuid, GIB, 10)],
                partition=number, partitions=LAYOUT,
            )
            for number in (2, 1)
        ]  # fmt: skip
        with ledger:
            for one in held:
                ledger.write(one, limits.page_of(one))
        folder, step, was_killed = mps_folder.folder_of(ledger.state_dir, uuid), 0, True
        stack.callback(mps_folder.end_all, folder)
        while was_killed:
            step += 1
            mps_folder.want(ledger.state_dir, uuid, program, str(gpu.libraries), "620.10")
            left[0] = step
            was_killed = False
            try:
                MpsKeeper(ledger.state_dir)._check(folder)
            except Killed:
                was_killed = True
            left[0] = 0
            _check_all(ledger, folder, [mps.space_of(one) for one in held])
            mps_folder.end_all(folder)
            shutil.rmtree(folder)
        assert step > 15


def _check_all(ledger: Ledger, folder: str, spaces: list[str]) -> None:
    """After one round of a keeper that is not killed."""
    MpsKeeper(ledger.state_dir)._check(folder)
    now, tree = mps_folder.ready(folder), mps_folder.wanted(folder)
    assert now is not None and tree is not None
    assert (now.partitions, now.binds, now.spaces) == ([64, 32, 32], True, sorted(spaces))
    assert mps_control.spaces(folder, tree).keys() == set(spaces)
    listed = mps_control._ask_v3(folder, tree, "sm-partition", "list", "--format=csv,noheader")
    rows = [line.split(",") for line in listed.splitlines()]
    assert [(row[2], row[3]) for row in rows] == [("p1", "8"), ("p2", "4"), ("p3", "4")]
    for number, row in enumerate(rows, 1):
        named = Path(mps_folder.partition_file(folder, number)).read_text()
        assert named == f"{row[1]}/{row[7]}"
    assert sorted(mps_processes.processes(folder)) == sorted([now.daemon[0], now.server[0]])
