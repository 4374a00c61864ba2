"""The watch from outside, with a fake of NVML and real records and pages."""

from __future__ import annotations

import os
import subprocess
import time
from collections.abc import Iterator
from typing import Any

import pytest

from support.gpu.slice_users import forge, mapping
from support.ledger.samples import GIB, host, record
from vcuda_hook.live import driver_figures
from vcuda_oci.fences import mps_folder
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.pages import limits, page_reader
from vcuda_oci.system import settings_file
from vcuda_plugin.agent.bypass import outside_watch
from vcuda_plugin.agent.bypass.detection import REPORT_AFTER_POLLS
from vcuda_plugin.agent.bypass.held_containers import Held, HeldContainers
from vcuda_plugin.agent.bypass.hidden_work import POLLS
from vcuda_plugin.agent.bypass.outside_watch import OutsideWatch
from vcuda_plugin.agent.bypass.process_probe import NO_LIMIT, OnGpu


class Probe:
    """NVML, as the test wants it."""

    def __init__(self, *_: Any) -> None:
        self.processes: list[OnGpu] = []
        self.limits: list[tuple[str, str, int]] = []

    def poll(self) -> list[OnGpu]:
        return self.processes

    def set_limit(self, uuid: str, cgroup: str, hard: int) -> str:
        self.limits.append((uuid, cgroup, hard))
        return ""

    def count(self, uuid: str, cgroup: str) -> int:
        return 3 * GIB


class FakeNode:
    """One container, "box", with a quarter of GPU-0 of two, and two processes of this host."""

    def __init__(self, folder: Any, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ledger = Ledger(str(folder))
        held = record("box", shares=[GpuShare("GPU-0", 4 * GIB, 30)])
        with self.ledger:
            self.ledger.write(held, limits.page_of(held))
        self.owners: dict[int, str] = {}
        monkeypatch.setattr(outside_watch, "ProcessProbe", Probe)
        monkeypatch.setattr(HeldContainers, "of", self.of)
        self.restart()

    def restart(self, bypass: str = "report", driver_limits: str = "off") -> None:
        """Watch with these settings."""
        text = f'bypass = "{bypass}"\ndriver-limits = "{driver_limits}"'
        settings = settings_file.parse(f'{text}\nstate-dir = "{self.ledger.state_dir}"', "/c")
        self.watch = OutsideWatch(host(16, 16), "", settings)
        self.probe: Any = self.watch._probe
        self.containers = self.watch._containers

    def of(self, pid: int) -> Held | None:
        by_id = {held.allocation.id: held for held in self.containers.follow().values()}
        return by_id.get(self.owners.get(pid, ""))

    def set_processes(self, *processes: tuple[int, str, int]) -> None:
        self.probe.processes = [OnGpu(*process, 0, True) for process in processes]

    def add_slice(self, name: str) -> None:
        held = record("cdi@" + name, runtime=[], container_id="")
        with self.ledger:
            self.ledger.write(held, limits.page_of(held))

    def findings(self, polls: int) -> list[str]:
        return [line for _ in range(polls) for line in self.watch.poll()]

    def events(self) -> list[tuple[str, str, bool]]:
        recorded = events.read(self.ledger.state_dir, "box")
        return [(event["why"], event["gpu"], event["stops"]) for event in recorded]


@pytest.fixture
def node(tmp_path: Any, monkeypatch: pytest.MonkeyPatch) -> FakeNode:
    return FakeNode(tmp_path, monkeypatch)


@pytest.fixture
def sleeper() -> Iterator[subprocess.Popen[bytes]]:
    process = subprocess.Popen(["sleep", "100"])
    yield process
    process.kill()
    process.wait()


def test_a_process_of_the_host_is_reported_once_and_never_stopped(
    node: FakeNode, sleeper: Any
) -> None:
    node.restart(bypass="stop")
    node.set_processes((sleeper.pid, "GPU-0", 15 * GIB), (os.getpid(), "GPU-1", GIB))
    line = f"GPU-0 is shared, and processes without a share use it: {sleeper.pid}"
    assert node.findings(4 * REPORT_AFTER_POLLS) == [line]
    assert (sleeper.poll(), node.events()) == (None, [])


def test_server_of_containers_under_mps_is_not_reported(node: FakeNode, sleeper: Any) -> None:
    folder = mps_folder.folder_of(node.ledger.state_dir, "GPU-00000000")
    os.makedirs(folder)
    server = [sleeper.pid, liveness.start_time(sleeper.pid)]
    mps_folder.write_ready(folder, mps_folder.Ready(server, server, []))
    node.set_processes((sleeper.pid, "GPU-0", 15 * GIB))
    assert node.findings(4 * REPORT_AFTER_POLLS) == []


def test_a_container_on_a_gpu_that_it_was_not_given_is_reported_and_stopped(
    node: FakeNode, sleeper: Any
) -> None:
    node.restart(bypass="stop")
    node.owners[sleeper.pid] = "box"
    node.set_processes((sleeper.pid, "GPU-1", GIB))
    assert node.findings(REPORT_AFTER_POLLS - 1) == []
    assert node.findings(1) == [
        f"box: container box holds 1.00 GiB of GPU-1, which it was not given: "
        f"process {sleeper.pid} (sleep); 1 processes killed"
    ]
    assert sleeper.wait(10) == -9
    assert node.events() == [("gpu", "GPU-1", True)]


def test_a_container_that_is_only_reported_runs_on(node: FakeNode, sleeper: Any) -> None:
    node.owners[sleeper.pid] = "box"
    node.set_processes((sleeper.pid, "GPU-0", 9 * GIB))
    assert len(node.findings(4 * REPORT_AFTER_POLLS)) == 2
    assert sleeper.poll() is None
    assert node.events() == [("memory", "GPU-0", False), ("shim", "GPU-0", False)]


def test_work_beside_turns_is_reported_and_written_to_the_limits_page(
    node: FakeNode, sleeper: Any, tmp_path: Any
) -> None:
    (tmp_path / "turns").mkdir()
    # Figures of the future, which stay fresh.
    at_ns = time.monotonic_ns() + 10**12
    (tmp_path / "turns" / "GPU-0").write_text(f"{at_ns} 0\n0 0 0 0 0 0 box\n")
    node.owners[sleeper.pid] = "box"
    node.probe.processes = [OnGpu(sleeper.pid, "GPU-0", GIB, 60, False)]
    for _ in range(POLLS):
        assert node.findings(1) == []
        node.watch.begin_second()
        time.sleep(0.002)
    assert node.findings(1) == []
    node.watch.begin_second()
    (line,) = node.findings(1)
    what = "used 60 % of GPU-0's time, 0 % of it in its turns; the rest costs it turns"
    assert line == f"box: container box {what}: process {sleeper.pid} (sleep)"
    page = page_reader.read_limits((tmp_path / "containers" / "box" / "limits").read_bytes())
    assert page.gpus[0].hidden_ms > 0
    assert (sleeper.poll(), node.events()) == (None, [("turns", "GPU-0", False)])


def test_the_driver_gets_a_containers_limit_if_the_container_has_a_cgroup(
    node: FakeNode, sleeper: Any, tmp_path: Any
) -> None:
    node.restart(driver_limits="auto")
    node.owners[sleeper.pid] = "box"
    node.findings(2)
    assert node.probe.limits == []
    (held,) = node.containers.follow().values()
    held.folder = str(tmp_path)
    node.findings(2)
    node.set_processes((sleeper.pid, "GPU-0", GIB))
    node.findings(2)
    counted = {("box", "GPU-0"): (6 * GIB, 3 * GIB)}
    assert driver_figures.read(node.ledger.state_dir) == counted
    with node.ledger:
        node.ledger.remove("box")
    node.findings(2)
    assert driver_figures.read(node.ledger.state_dir) == {}
    asked = (5 * GIB, 6 * GIB, NO_LIMIT)
    assert node.probe.limits == [("GPU-0", str(tmp_path), hard) for hard in asked]


def test_watch_goes_on_where_the_drivers_figures_cannot_be_written(
    node: FakeNode, sleeper: Any, tmp_path: Any
) -> None:
    (tmp_path / "driver_limits.json").mkdir()  # as ENOSPC: the file cannot be replaced
    node.restart(driver_limits="auto")
    node.owners[sleeper.pid] = "box"
    node.findings(1)
    (held,) = node.containers.follow().values()
    held.folder = str(tmp_path)
    node.set_processes((sleeper.pid, "GPU-1", GIB))
    assert len(node.findings(REPORT_AFTER_POLLS)) == 1


def test_forged_slots_of_a_slice_end_no_process_and_blame_no_slice(
    node: FakeNode, sleeper: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Every user of the host can write into a named slice's page."""
    monkeypatch.undo()
    monkeypatch.setattr(outside_watch, "ProcessProbe", Probe)
    node.add_slice("team")
    forge(f"{node.ledger.containers}/cdi@team/usage", sleeper.pid)
    node.restart(bypass="stop")
    node.set_processes((sleeper.pid, "GPU-1", 15 * GIB))
    node.findings(2 * REPORT_AFTER_POLLS)
    assert sleeper.poll() is None
    assert list(events.read(node.ledger.state_dir)) == []


def test_a_slices_own_process_that_takes_more_is_reported_and_runs_on(node: FakeNode) -> None:
    """Several containers may share a slice, and its page is any user's to map."""
    node.add_slice("team")
    with mapping(f"{node.ledger.containers}/cdi@team/usage") as user:
        node.owners[user.pid] = "cdi@team"
        node.restart(bypass="stop")
        node.set_processes((user.pid, "GPU-1", 15 * GIB))
        reported = node.findings(2 * REPORT_AFTER_POLLS)
        assert user.poll() is None
    assert [line.split(":")[0] for line in reported] == ["cdi@team"]
    found = events.read(node.ledger.state_dir, "cdi@team")
    assert [(event["why"], event["stops"]) for event in found] == [("gpu", False)]
