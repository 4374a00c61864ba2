"""Static partitions of multiprocessors, version 3 of the control interface on the software GPU."""

from __future__ import annotations

import json
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.softgpu.softgpu_host import BUILT, SoftGpu, answer, first_line, go_on
from support.softgpu.softgpu_mps import INIT, LIMITED, SPINS, ControlDaemon
from support.waiting import until

WRONG = {"rc": 915}  # CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION


@pytest.fixture
def driver() -> str:
    return "620.10"


@pytest.fixture
def gpu(folder: Path, driver: str) -> SoftGpu:
    return SoftGpu(folder, "--memory", "1GiB", "--driver-version", driver)


@pytest.fixture
def daemon(gpu: SoftGpu, folder: Path) -> Iterator[ControlDaemon]:
    """With a server `v` that is ready."""
    running = ControlDaemon(gpu, folder, "-p", "3", "-m")
    running.verb("server create v --uid=0")
    until(lambda: running.verb("server get v status") == "Ready")
    yield running
    running.close()


def partition(daemon: ControlDaemon, name: str, chunks: int) -> str:
    """Make a partition; return what its clients name."""
    told = daemon.verb(f"sm-partition create {name} --server=v --device=0 --chunks={chunks}")
    return told.rpartition("CUDA_MPS_SM_PARTITION=")[2]


def refusal(daemon: ControlDaemon, command: str) -> str:
    done = daemon.control(*command.split())
    assert done.returncode == 1, done.stdout
    return done.stdout.strip()


def test_partitions_are_listed_with_the_multiprocessors_that_they_have(
    daemon: ControlDaemon,
) -> None:
    device = daemon.verb("device list --format=csv,noheader").split(",")
    assert device[5:7] == ["132", "16"]
    named = partition(daemon, "p0", 8)
    uuid, id = named.split("/")
    row = ["v", uuid, "p0", "8", "64", "false", "created", id]
    listed = daemon.verb("sm-partition list --server=v --all --format=csv,noheader")
    assert listed == ",".join(row)
    daemon.verb("sm-partition delete p0 --server=v --device=0")
    assert daemon.verb("sm-partition list --server=v --format=csv,noheader") == ""


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("create p1 --server=w --device=0 --chunks=1", "server 'w' not found"),
        ("create p1 --server=v --device=7 --chunks=1", "unknown device '7'"),
        ("create p1 --server=v --device=0 --chunks=0", "invalid number of chunks '0'"),
        ("create p1 --server=v --device=0", "invalid number of chunks ''"),
        ("create P1 --server=v --device=0 --chunks=1", "SM partition 'P1' cannot be created"),
        ("create p0 --server=v --device=0 --chunks=1", "SM partition 'p0' already exists"),
        ("create p1 --server=v --device=0 --chunks=9", "9 chunks are asked for, 8 are free"),
        ("delete p1 --server=v --device=0", "SM partition 'p1' not found"),
    ],
)
def test_wrong_partition_is_refused_in_one_line(
    daemon: ControlDaemon, command: str, line: str
) -> None:
    partition(daemon, "p0", 8)
    assert refusal(daemon, f"sm-partition {command}") == f"Error: {line}"


def test_partition_is_refused_while_the_gpu_has_clients(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    with daemon.variables(below="v"):
        client = gpu.start_client(SPINS)
        assert first_line(client) == 1
    create = "sm-partition create p0 --server=v --device=0 --chunks=4"
    assert refusal(daemon, create) == "Error: device '0' has active clients"
    go_on(client)
    client.wait()
    until(lambda: daemon.verb("client list --all --format=csv,noheader") == "")
    daemon.verb(create)


def test_client_without_a_partition_that_exists_is_refused(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    named = partition(daemon, "p0", 4)
    with daemon.variables(below="v"):
        assert gpu.client(INIT) == WRONG
    for wrong in (named + "x", named.split("/")[1], "GPU-0/" + named.split("/")[1]):
        with daemon.variables(below="v", partition=wrong):
            assert gpu.client(INIT) == WRONG
    with daemon.variables(below="v", partition=named):
        assert gpu.client(INIT) == {"rc": 0}


def test_client_has_all_of_its_partition_whatever_its_percentage_is(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    named = partition(daemon, "p0", 4)
    with daemon.variables(below="v", partition=named, percent="10"):
        assert answer(gpu.start_client(LIMITED))["width"] == 32


@pytest.mark.parametrize(("driver", "status", "width"), [("615.10", 1, 64), ("620.10", 0, 32)])
def test_namespace_chooses_for_its_clients_from_driver_620_on(
    gpu: SoftGpu, daemon: ControlDaemon, status: int, width: int
) -> None:
    partition(daemon, "p0", 4)
    wide = partition(daemon, "p1", 8)
    daemon.verb("namespace create a --server=v")
    words = ["namespace", "set", "a", "--server=v", "--device=0", "--sm-partition=p0"]
    done = daemon.control(*words)
    with daemon.variables(below="v/a", partition=wide):
        assert answer(gpu.start_client(LIMITED))["width"] == width
    assert done.returncode == status


def test_kernels_run_on_their_partition_alone_which_its_clients_share(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    names = [partition(daemon, f"p{at}", chunks) for at, chunks in enumerate((8, 4))]
    of_pid, clients = dict[int, str](), list[subprocess.Popen[str]]()
    for named in (names[0], names[0], names[1]):
        with daemon.variables(below="v", partition=named):
            busy = ["busy", "--kernel-us=10000", "--async=8", "--seconds=600"]
            clients.append(gpu.start_workload(*busy))
        of_pid[clients[-1].pid] = named
    until(lambda: [one["kernels_finished"] > 0 for one in times(gpu)["processes"]] == [True] * 3)
    before = times(gpu)
    time.sleep(1)
    after = times(gpu)
    for client in clients:
        client.kill()
        client.wait()
    used = dict.fromkeys(names, 0.0)
    begun = {one["pid"]: one["whole_ns"] for one in before["processes"]}
    for one in after["processes"]:
        used[of_pid[one["pid"]]] += one["whole_ns"] - begun[one["pid"]]
    passed = after["clock_ns"] - before["clock_ns"]
    found = [132 * used[named] / passed for named in names]
    assert found == pytest.approx([64, 32], rel=0.05)


def times(gpu: SoftGpu) -> dict[str, Any]:
    told = gpu.run(str(BUILT / "softgpu"), "time", str(gpu.root), "--json").stdout
    found: dict[str, Any] = json.loads(told)["gpus"][0]
    return found
