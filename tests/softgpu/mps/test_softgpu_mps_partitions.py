"""Static partitions of multiprocessors, of both versions of MPS, on the software GPU."""

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

WITH_V2 = "590.10"
BOTH = pytest.mark.parametrize("driver", [WITH_V2, "620.10"])
WRONG = {"rc": 915}  # CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION


@pytest.fixture
def driver() -> str:
    return "620.10"


@pytest.fixture
def gpu(folder: Path, driver: str) -> SoftGpu:
    return SoftGpu(folder, "--memory", "1GiB", "--driver-version", driver)


@pytest.fixture
def daemon(gpu: SoftGpu, folder: Path, driver: str) -> Iterator[ControlDaemon]:
    """With a server that is ready: of version 3 `v`."""
    running = ControlDaemon(gpu, folder, *(["-S"] if driver == WITH_V2 else ["-p", "3", "-m"]))
    if driver == WITH_V2:
        running.say("start_server -uid 0")
        until(lambda: running.say("get_server_list") != "")
    else:
        running.verb("server create v --uid=0")
        until(lambda: running.verb("server get v status") == "Ready")
    yield running
    running.close()


@pytest.fixture
def below(driver: str) -> str:
    """Where clients find the server, in the pipe directory."""
    return "" if driver == WITH_V2 else "v"


def partition(daemon: ControlDaemon, name: str, chunks: int) -> str:
    """Make a partition; return what its clients name."""
    if daemon.say("get_server_list").strip().isdigit():
        return added(daemon, chunks)
    told = daemon.verb(f"sm-partition create {name} --server=v --device=0 --chunks={chunks}")
    return told.rpartition("CUDA_MPS_SM_PARTITION=")[2]


def added(daemon: ControlDaemon, chunks: int) -> str:
    """`partition` of version 2."""
    told = daemon.say(f"sm_partition add {uuid_of(daemon)} {chunks}").split()
    assert (told[0], told[2]) == ("Partition", "created"), told
    return told[1]


def uuid_of(daemon: ControlDaemon) -> str:
    """A beginning of the GPU's UUID."""
    return daemon.say("lspart").split("\n")[2].split()[0]


def rows(daemon: ControlDaemon) -> list[list[str]]:
    """What `lspart` lists, without UUIDs and header."""
    return [line.split()[1:] for line in daemon.say("lspart").split("\n")[2:-1]]


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


@BOTH
def test_client_without_a_partition_that_exists_is_refused(
    gpu: SoftGpu, daemon: ControlDaemon, below: str
) -> None:
    named = partition(daemon, "p0", 4)
    id = named.split("/", 1)[1]
    with daemon.variables(below=below):
        assert gpu.client(INIT) == WRONG
    for wrong in (named + "x", id, "GPU-x/" + id):
        with daemon.variables(below=below, partition=wrong):
            assert gpu.client(INIT) == WRONG
    with daemon.variables(below=below, partition=named):
        assert gpu.client(INIT) == {"rc": 0}


@BOTH
def test_client_has_all_of_its_partition_whatever_its_percentage_is(
    gpu: SoftGpu, daemon: ControlDaemon, below: str
) -> None:
    named = partition(daemon, "p0", 4)
    with daemon.variables(below=below, partition=named, percent="10"):
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


@BOTH
def test_kernels_run_on_their_partition_alone_which_its_clients_share(
    gpu: SoftGpu, daemon: ControlDaemon, below: str
) -> None:
    names = [partition(daemon, f"p{at}", chunks) for at, chunks in enumerate((8, 4))]
    of_pid, clients = dict[int, str](), list[subprocess.Popen[str]]()
    for named in (names[0], names[0], names[1]):
        with daemon.variables(below=below, partition=named):
            # Half a second of work ahead: a crowded machine may keep a client waiting for long.
            busy = ["busy", "--kernel-us=10000", "--async=50", "--seconds=600"]
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


@pytest.mark.parametrize("driver", [WITH_V2])
def test_version_2_lists_removes_and_refuses_its_partitions(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    uuid = uuid_of(daemon)
    assert rows(daemon) == [["16", "0", "132", "0"]]
    id = added(daemon, 8).split("/", 1)[1]
    assert rows(daemon) == [["8", "8", "68", "64"], [id, "8", "64", "No"]]
    assert "CUDA_ERROR_INVALID_RESOURCE_CONFIGURATION" in daemon.say(f"sm_partition add {uuid} 9")
    for wrong in ("add GPU-x 1", "add 0 1", f"add {uuid} 0", f"add {uuid}", f"rm {uuid} {id}x"):
        assert daemon.say(f"sm_partition {wrong}").startswith("Invalid "), wrong
    with daemon.variables(partition=f"{uuid}/{id}"):
        client = gpu.start_client(SPINS)
        assert first_line(client) == 1
    assert rows(daemon)[1][3] == "Yes"
    assert "in use" in daemon.say(f"sm_partition rm {uuid} {id}")
    go_on(client)
    client.wait()
    until(lambda: rows(daemon)[1][3] == "No")
    assert daemon.say(f"sm_partition rm {uuid} {id}") == ""
    assert rows(daemon) == [["16", "0", "132", "0"]]
    with daemon.variables():  # nor is a client served where no partition is left
        assert gpu.client(INIT) == WRONG


@pytest.mark.parametrize("driver", [WITH_V2])
def test_partitions_of_version_2_end_with_their_server(daemon: ControlDaemon) -> None:
    added(daemon, 8)
    before = daemon.say("get_server_list")
    daemon.say(f"shutdown_server {before}")
    until(lambda: daemon.say("get_server_list") == "")
    assert daemon.say("lspart") == ""
    daemon.say("start_server -uid 0")
    until(lambda: daemon.say("get_server_list") not in ("", before))
    assert rows(daemon) == [["16", "0", "132", "0"]]


@pytest.mark.parametrize(
    ("driver", "told"),
    [("580.95", "Unknown command: {}"), (WITH_V2, "Static partitioning mode is not enabled")],
)
def test_daemon_without_the_option_makes_no_partition(
    gpu: SoftGpu, folder: Path, told: str
) -> None:
    daemon = ControlDaemon(gpu, folder)
    try:
        for line in ("lspart", "sm_partition add GPU-x 1"):
            assert daemon.say(line).strip() == told.format(line.split()[0])
        with daemon.variables(partition="GPU-x/x"):
            assert gpu.client(INIT) == {"rc": 0}
    finally:
        daemon.close()


@pytest.mark.parametrize(
    ("driver", "options"),
    [("580.95", ["-S"]), ("580.95", ["--static-partitioning"]), ("615.10", ["-S", "-p", "3"])],
)
def test_option_is_refused_by_older_drivers_and_beside_version_3(
    gpu: SoftGpu, options: list[str]
) -> None:
    program = gpu.root / "usr/bin/nvidia-cuda-mps-control"
    done = gpu.run("timeout", "10", str(program), "-f", *options)
    assert done.returncode == 1 and "usage:" in done.stderr


def times(gpu: SoftGpu) -> dict[str, Any]:
    told = gpu.run(str(BUILT / "softgpu"), "time", str(gpu.root), "--json").stdout
    found: dict[str, Any] = json.loads(told)["gpus"][0]
    return found
