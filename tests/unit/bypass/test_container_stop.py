"""The processes that get SIGKILL when a container is stopped."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from typing import Any

import pytest

from support.ledger.samples import record
from vcuda_plugin.agent.bypass import container_stop
from vcuda_plugin.agent.bypass.held_containers import Held


@pytest.fixture
def sleepers() -> Iterator[list[subprocess.Popen[bytes]]]:
    started = [subprocess.Popen(["sleep", "100"]) for _ in range(3)]
    yield started
    for process in started:
        process.kill()
        process.wait()


def test_reused_pid_is_not_signalled(sleepers: Any, tmp_path: Any) -> None:
    its, others, gone = sleepers
    gone.kill()
    gone.wait()
    held, neighbour = Held(record("a"), str(tmp_path)), Held(record("b"), str(tmp_path))

    def owner(pid: int) -> Held | None:
        return {its.pid: held, others.pid: neighbour}.get(pid)

    assert container_stop.stop(held, [process.pid for process in sleepers], owner) == 1
    assert its.wait(10) == -9
    assert others.poll() is None


def test_process_that_ends_during_a_poll_stops_no_other(sleepers: Any, tmp_path: Any) -> None:
    """Its pid may be given to the next process at any moment."""
    its, bystander, _ = sleepers
    held = Held(record("a"), str(tmp_path))

    def owner(pid: int) -> Held:
        its.kill()
        its.wait()
        raise FileNotFoundError

    assert container_stop.stop(held, [its.pid], owner) == 0
    assert bystander.poll() is None
