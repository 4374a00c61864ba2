"""`vcuda doctor` finds MPS daemons of any program, however they were started."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu
from support.softgpu.softgpu_mps import ControlDaemon
from support.waiting import until
from vcuda_hook.doctor import mps
from vcuda_oci.fences import mps_processes
from vcuda_oci.ledger.ledger import Ledger


@pytest.fixture
def folder() -> Iterator[Path]:
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="dm") as found:
        yield Path(found)


def found(folder: Path) -> dict[str, int]:
    """By pipe directory, the pids of daemons below the folder."""
    daemons = mps_processes.control_daemons()
    return {pipes: pid for pid, pipes in daemons.items() if pipes.startswith(str(folder))}


def test_daemon_is_found_by_its_program_and_socket_not_by_its_options(folder: Path) -> None:
    gpu = SoftGpu(folder)
    daemon = ControlDaemon(gpu, folder, "--daemon")
    with daemon.variables():
        asks = gpu.popen([str(gpu.root / "usr/bin/nvidia-cuda-mps-control")])  # waits for commands
    try:
        assert found(folder) == {f"{folder}/pipe": daemon.pid}
        (told,) = [one for one in mps._daemons(Ledger(f"{folder}/s")) if one.pid == daemon.pid]
        assert (told.folder, told.pipes) == ("", f"{folder}/pipe")
    finally:
        asks.kill()
        asks.wait()
        daemon.close()
    assert found(folder) == {}


def test_daemon_in_another_pid_namespace_is_found_too(folder: Path) -> None:
    gpu = SoftGpu(folder)
    places = {"CUDA_MPS_PIPE_DIRECTORY": f"{folder}/p", "CUDA_MPS_LOG_DIRECTORY": f"{folder}/l"}
    program = str(gpu.root / "usr/bin/nvidia-cuda-mps-control")
    unshare = ["unshare", "--pid", "--fork", "--kill-child", program, "-f"]
    environment = {**gpu.environment(), **places}
    with subprocess.Popen(unshare, env=environment) as process:
        until(lambda: os.path.exists(f"{folder}/p/nvidia-cuda-mps-control.pid"))
        assert found(folder).keys() == {f"{folder}/p"}
        process.kill()
