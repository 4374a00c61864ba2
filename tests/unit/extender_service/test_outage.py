"""kube-scheduler is started again after an outage of the API server, and only then."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.extender.follow import outage
from vcuda_plugin.extender.follow.outage import Outage
from vcuda_plugin.kube.api import ApiError


class Api:
    """Away for so many seconds of its own clock."""

    def __init__(self, away: float, error: Exception) -> None:
        self.now, self._away, self._error = 100.0, away, error
        self.restarts: list[float] = []

    def ask(self) -> str:
        if self.now - 100.0 < self._away:
            raise self._error
        return "v1.36.2"

    def clock(self) -> float:
        return self.now

    def sleep(self, seconds: float) -> None:
        self.now += seconds

    def run(self) -> list[float]:
        """Seconds of the outage at each restart."""
        made = Outage(self.ask, lambda: self.restarts.append(self.now - 100.0))
        made.follow(self.clock, self.sleep)
        return self.restarts


@pytest.mark.parametrize(("away", "restarts"), [(0.0, []), (3.5, []), (5.0, [5.0]), (59.5, [60.0])])
@pytest.mark.parametrize(
    "error", [ApiError(0, "refused"), VcudaError("a", "b", "c")], ids=["api", "kubeconfig"]
)
def test_scheduler_is_restarted_once_after_five_seconds_away(
    away: float, restarts: list[float], error: Exception
) -> None:
    assert Api(away, error).run() == restarts


def test_only_processes_of_that_name_and_user_are_ended(tmp_path: Path) -> None:
    other = subprocess.Popen(["sleep", "100"])
    asked = subprocess.Popen(["sleep", "100"])
    try:
        for pid, name in ((asked.pid, "kube-scheduler"), (other.pid, "kube-schedule")):
            (tmp_path / str(pid)).mkdir()
            (tmp_path / str(pid) / "comm").write_text(name + "\n")
        (tmp_path / "self").mkdir()
        (tmp_path / "7").mkdir()  # a process that has ended since
        if os.geteuid() == 0:
            foreign = tmp_path / str(os.getpid())
            foreign.mkdir()
            (foreign / "comm").write_text("kube-scheduler\n")
            os.chown(foreign, 65532, 65532)
        assert outage.end_processes("kube-scheduler", str(tmp_path)) == [asked.pid]
        assert asked.wait(30) == -15
        assert other.poll() is None
    finally:
        for process in (other, asked):
            process.kill()
            process.wait()
