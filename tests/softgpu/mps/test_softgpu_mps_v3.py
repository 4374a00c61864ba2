"""Version 3 of the control interface on the software GPU: servers, namespaces and their limits."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line, go_on
from support.softgpu.softgpu_mps import INIT, LIMITED, SPINS, ControlDaemon
from support.waiting import until


@pytest.fixture
def gpu(folder: Path) -> SoftGpu:
    return SoftGpu(folder, "--memory", "1GiB", "--driver-version", "615.10")


@pytest.fixture
def daemon(gpu: SoftGpu, folder: Path) -> Iterator[ControlDaemon]:
    running = ControlDaemon(gpu, folder, "-p", "3", "-m")
    yield running
    running.close()


def make(daemon: ControlDaemon, space: str, options: str) -> None:
    daemon.verb(f"namespace create {space} --server=v")
    daemon.verb(f"namespace set {space} --server=v {options}")


def test_driver_before_615_knows_neither_version_three_nor_its_options(folder: Path) -> None:
    gpu = SoftGpu(folder, "--driver-version", "610.10")
    daemon = ControlDaemon(gpu, folder)
    for options in (("-d", "-p", "3"), ("-d", "-m"), ("-q",), ("server", "list")):
        assert daemon.control(*options).returncode == 1
    daemon.close()


def test_verbs_make_list_and_remove_servers_and_namespaces(
    daemon: ControlDaemon, folder: Path
) -> None:
    daemon.verb("server create v --uid=0 --allowed-devices=0")
    until(lambda: daemon.verb("server get v status") == "Ready")
    uuid = daemon.verb("device list --format=csv,noheader").split(",")[3]
    listed = daemon.verb("server list --format=csv,noheader").split(",")
    assert [listed[i] for i in (0, 1, 3, 4, 5)] == ["v", "0", "Ready", f"{folder}/pipe/v", uuid]
    make(daemon, "a", "--pinned-memory-limit=512M --active-thread-percentage=30")
    row = ["a", "v", "Ready", "512M", "30", "0", f"{folder}/pipe/v/a"]
    assert daemon.verb("namespace list a --server=v --format=csv,noheader") == ",".join(row)
    assert (folder / "pipe/v/a/control").is_socket()
    daemon.verb("namespace delete a --server=v")
    assert not (folder / "pipe/v/a").exists()
    daemon.verb("server delete v")
    assert not (folder / "pipe/v").exists()
    assert daemon.verb("server list --format=csv,noheader") == ""


@pytest.mark.parametrize(
    ("command", "line"),
    [
        ("server create V", "server 'V' cannot be created"),
        ("server create w --uid=5", "only --uid=0 is allowed in multiuser mode"),
        ("server create w --allowed-devices=7", "unknown device in '7'"),
        ("namespace create a --server=w", "server 'w' not found"),
        ("namespace delete default --server=v", "the default namespace stays"),
        ("namespace set default --server=v", "no option is given"),
        (
            "namespace set default --server=v --active-thread-percentage=0",
            "invalid active thread percentage '0'",
        ),
        ("get_server_list", "unknown command 'get_server_list '"),
    ],
)
def test_wrong_verb_fails_with_one_line(daemon: ControlDaemon, command: str, line: str) -> None:
    daemon.verb("server create v --uid=0")
    done = daemon.control(*command.split())
    assert (done.returncode, done.stdout) == (1, f"Error: {line}\n")


def test_namespace_holds_its_limits_whatever_variables_its_clients_set(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    daemon.verb("server create v --uid=0")
    make(daemon, "a", "--pinned-memory-limit=256M --active-thread-percentage=30")
    make(daemon, "b", "--pinned-memory-limit=64M")
    with daemon.variables(below="v/a", percent="100", pinned="0=1G"):
        wide = gpu.start_client(LIMITED)
    with daemon.variables(below="v/a", percent="10", pinned="0=32M"):
        narrow = gpu.start_client(LIMITED)
    with daemon.variables(below="v/b", percent="50"):
        other = gpu.start_client(LIMITED)
    assert answer(wide) == {"mib": 256, "width": 38}
    assert answer(narrow) == {"mib": 32, "width": 38}  # the percentage is not lowered either
    assert answer(other) == {"mib": 64, "width": 66}


def test_clients_are_of_the_namespace_that_their_socket_belongs_to(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    daemon.verb("server create v --uid=0")
    make(daemon, "a", "--active-thread-percentage=30")
    found = []
    for below in ("v/a", "v", ""):
        with daemon.variables(below=below):
            client = gpu.start_client(SPINS)
            assert first_line(client) == 1
        row = daemon.verb("client list --all --format=csv,noheader").split(",")
        assert int(row[0]) == client.pid
        found.append((row[1], row[3]))
        go_on(client)
        client.wait()
    assert found == [("v", "a"), ("v", "default"), ("uid_0", "default")]


def test_fault_ends_the_clients_of_its_server_alone(gpu: SoftGpu, daemon: ControlDaemon) -> None:
    daemon.verb("server create v --uid=0")
    daemon.verb("server create w --uid=0")
    with daemon.variables(below="v"):
        client = gpu.start_client(SPINS)
        assert first_line(client) == 1
    with daemon.variables(below="w"):
        other = gpu.start_client(SPINS)
        assert first_line(other) == 1
    until(lambda: daemon.verb("server get w status") == "Ready")
    os.kill(int(daemon.verb("server get v pid")), 9)
    until(lambda: daemon.verb("server get v status") == "Stopped")
    for process, error in ((client, "CUDA_ERROR_MPS_RPC_FAILURE"), (other, "")):
        go_on(process)
        assert error in process.communicate()[1]
    assert (client.returncode != 0, other.returncode) == (True, 0)


def test_forced_removal_of_a_namespace_ends_its_clients(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    daemon.verb("server create v --uid=0")
    make(daemon, "a", "--active-thread-percentage=30")
    with daemon.variables(below="v/a"):
        client = gpu.start_client(SPINS)
        assert first_line(client) == 1
        refused = daemon.control("namespace", "delete", "a", "--server=v")
        assert refused.stdout == "Error: namespace 'a' has active clients\n"
        daemon.verb("namespace delete a --server=v --force")
        go_on(client)
        assert "CUDA_ERROR_MPS_CLIENT_TERMINATED" in client.communicate()[1]
        assert gpu.client(INIT) == {"rc": 0}  # no socket: it is not under MPS
    assert daemon.verb("client list --all --format=csv,noheader") == ""
