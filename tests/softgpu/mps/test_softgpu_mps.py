"""MPS on the software GPU: the control daemon, its words, its clients and their limits."""

from __future__ import annotations

import os
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.softgpu.softgpu_host import SoftGpu, answer, first_line, go_on
from support.softgpu.softgpu_mps import INIT, LIMITED, SPINS, ControlDaemon
from support.waiting import until

HOLDS = """
start()
print(1, flush=True)
sys.stdin.readline()
"""


@pytest.fixture
def gpu(tmp_path: Path) -> SoftGpu:
    return SoftGpu(tmp_path, "--memory", "1GiB")


@pytest.fixture
def daemon(gpu: SoftGpu, tmp_path: Path) -> Iterator[ControlDaemon]:
    running = ControlDaemon(gpu, tmp_path)
    yield running
    running.close()


def test_daemon_starts_once_and_answers_the_words_of_version_two(daemon: ControlDaemon) -> None:
    again = daemon.control("-d")
    assert (again.returncode, again.stdout) == (
        1,
        "An instance of this daemon is already running\n",
    )
    assert daemon.say("get_server_list") == ""
    assert daemon.say("set_default_active_thread_percentage 40") == "40.0\n"
    assert daemon.say("get_default_active_thread_percentage") == "40.0\n"
    daemon.say("set_default_device_pinned_mem_limit 0 512M")
    daemon.say("start_server -uid 0")
    until(lambda: daemon.say("get_server_list") != "")
    server = daemon.say("get_server_list").strip()
    assert daemon.say(f"get_server_status {server}") == "ACTIVE\n"
    assert daemon.say(f"get_active_thread_percentage {server}") == "40.0\n"
    assert daemon.say(f"get_device_pinned_mem_limit {server} 0") == "512M\n"
    assert daemon.say("no_such_word") == "Unknown command: no_such_word\n"
    daemon.say("quit")
    until(lambda: not os.path.exists(f"/proc/{server}"))
    missing = "Cannot find MPS control daemon process\n"
    until(lambda: daemon.say("get_server_list") == missing)  # it ends after its server


def test_clients_variables_tighten_the_servers_limits_and_never_widen(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    daemon.say("set_default_active_thread_percentage 50")
    daemon.say("set_default_device_pinned_mem_limit 0 256M")
    with daemon.variables(percent="80", pinned="0=1G"):
        wide = gpu.start_client(LIMITED)
    with daemon.variables(percent="30", pinned="0=64M"):
        narrow = gpu.start_client(LIMITED)
    assert answer(wide) == {"mib": 256, "width": 66}
    assert answer(narrow) == {"mib": 64, "width": 38}  # of 132, as on an H200


@pytest.mark.parametrize(("percent", "width"), [("1", 2), ("3", 2), ("4", 4), ("99", 130)])
def test_percentage_counts_in_pairs_of_multiprocessors(
    gpu: SoftGpu, daemon: ControlDaemon, percent: str, width: int
) -> None:
    with daemon.variables(percent=percent):
        assert gpu.client(LIMITED)["width"] == width


@pytest.mark.parametrize(("driver", "needed"), [("570.10", True), ("580.159.04", False)])
def test_server_has_a_file_that_its_clients_need_before_driver_580(
    tmp_path: Path, driver: str, needed: bool
) -> None:
    gpu = SoftGpu(tmp_path / "gpu", "--driver-version", driver)
    daemon = ControlDaemon(gpu, tmp_path)
    with daemon.variables():
        assert gpu.client(INIT) == {"rc": 0}
        server = int(daemon.say("get_server_list"))
        found = list(Path("/dev/shm").glob(f"cuda.shm.*.{server:x}.*"))
        assert len(found) == needed
        for file in found:
            file.unlink()
            assert gpu.client(INIT) == {"rc": 805}  # CUDA_ERROR_MPS_CONNECTION_FAILED
    daemon.close()


def test_one_fault_ends_all_clients_and_none_is_admitted_before_they_end(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    with daemon.variables():
        clients = [gpu.start_client(SPINS) for _ in range(2)]
        assert [first_line(one) for one in clients] == [1, 1]
        gpu.order("fail", "--mps-fault", "0")
        server = daemon.say("get_server_list").strip()
        assert daemon.say(f"get_server_status {server}") == "FAULT\n"
        assert gpu.client(INIT) == {"rc": 807}
        for client in clients:
            go_on(client)
            _, error = client.communicate()
            assert "CUDA_ERROR_ILLEGAL_ADDRESS" in error
        until(lambda: daemon.say(f"get_server_status {server}") == "ACTIVE\n")
        assert gpu.client(INIT) == {"rc": 0}


def test_killed_server_fails_its_clients_and_the_next_client_starts_a_new_one(
    gpu: SoftGpu, daemon: ControlDaemon
) -> None:
    with daemon.variables():
        client = gpu.start_client(SPINS)
        assert first_line(client) == 1
        server = daemon.say("get_server_list").strip()
        os.kill(int(server), 9)
        until(lambda: daemon.say("get_server_list") == "")
        go_on(client)
        assert "CUDA_ERROR_MPS_RPC_FAILURE" in client.communicate()[1]
        assert gpu.client(INIT) == {"rc": 0}
        assert daemon.say("get_server_list").strip() not in ("", server)


@pytest.fixture
def open_folder() -> Iterator[Path]:
    """A folder that every user may enter."""
    with tempfile.TemporaryDirectory(dir="/dev/shm") as folder:
        os.chmod(folder, 0o755)
        yield Path(folder)


def test_a_client_of_another_user_waits_unless_the_server_is_for_all(open_folder: Path) -> None:
    gpu = SoftGpu(open_folder)
    for options, waits in (((), True), (("-multiuser-server",), False)):
        daemon = ControlDaemon(gpu, open_folder, *options)
        with daemon.variables():
            first = gpu.start_client(HOLDS)
            assert first_line(first) == 1
            other = gpu.start_client("import os; os.setuid(65534)\n" + HOLDS)
            if waits:
                with pytest.raises(subprocess.TimeoutExpired):
                    other.wait(0.5)
                go_on(first)
            assert first_line(other) == 1
            for client in (other,) if waits else (other, first):
                go_on(client)
        daemon.close()


@pytest.mark.parametrize(("driver", "most"), [("580.95.05", 48), ("590.44.01", 60)])
def test_server_refuses_one_client_too_many(tmp_path: Path, driver: str, most: int) -> None:
    gpu = SoftGpu(tmp_path / "gpu", "--driver-version", driver)
    script = f"""
import os
seen, up = os.pipe()
children = []
for _ in range({most}):
    pid = os.fork()
    if pid == 0:
        assert int(cuda.cuInit(0)[0]) == 0
        os.write(up, b"x")
        signal.pause()
    children.append(pid)
    os.read(seen, 1)
rc = int(cuda.cuInit(0)[0])
for pid in children:
    os.kill(pid, 9)
say(rc=rc)
"""
    daemon = ControlDaemon(gpu, tmp_path)
    with daemon.variables():
        assert gpu.client(script) == {"rc": 808}
    daemon.close()


def test_exclusive_gpu_differs_by_the_attribute_of_its_mode_alone(tmp_path: Path) -> None:
    script = """
start()
say(values=[ok(cuda.cuDeviceGetAttribute(attribute, 0)) for attribute in cuda.CUdevice_attribute
            if 0 < attribute < cuda.CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MAX])
"""
    modes = "default", "exclusive-process"
    answers = [
        SoftGpu(tmp_path / mode, "--compute-mode", mode).client(script)["values"] for mode in modes
    ]
    assert [pair for pair in zip(*answers) if pair[0] != pair[1]] == [(0, 3)]


def test_exclusive_gpu_admits_one_process_or_all_clients_of_mps(tmp_path: Path) -> None:
    gpu = SoftGpu(tmp_path, "--compute-mode", "exclusive-process")
    retain = "cuda.cuInit(0); say(rc=int(cuda.cuDevicePrimaryCtxRetain(0)[0]))"
    alone = gpu.start_client(HOLDS)
    assert first_line(alone) == 1
    assert gpu.client(retain) == {"rc": 46}
    go_on(alone)
    alone.wait()
    daemon = ControlDaemon(gpu, tmp_path)
    with daemon.variables():
        clients = [gpu.start_client(HOLDS) for _ in range(2)]
        assert [first_line(one) for one in clients] == [1, 1]
    assert gpu.client(retain) == {"rc": 46}  # not a client
    for client in clients:
        go_on(client)
    daemon.close()
