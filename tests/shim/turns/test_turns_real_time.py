"""The turn keeper dies, stops and is replaced, in real time: witnesses with wide bounds."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from shim.policy_node import PolicyNode, limits_of
from support.files import ROOT
from support.gpu.guest import PYTHON, WORKLOAD, Guest
from support.gpu.turn_word import WAIT, write_turn
from support.shares.false_pages import CLOSING, PAGE, RINGING
from support.shares.judge import KEEPER, SOFTGPU
from support.shares.keeper_cost import processor_seconds
from support.waiting import until

MOST_SECONDS = 30


def start_keeper(node: PolicyNode) -> subprocess.Popen[bytes]:
    return subprocess.Popen([KEEPER, node.state_dir, str(os.getpid())], stderr=subprocess.PIPE)


@contextlib.contextmanager
def ending(*processes: subprocess.Popen[Any]) -> Iterator[None]:
    try:
        yield
    finally:
        for process in processes:
            process.kill()
            process.communicate()


def words(guests: list[Guest]) -> int:
    return sum(limits_of(guest).gpus[0].turn >> 2 for guest in guests)


def counts_of(node: PolicyNode) -> dict[int, int]:
    """By pid the kernels that a process has finished, as the GPU itself counts them."""
    command = [SOFTGPU, "time", node.driver_root, "--json"]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    live = json.loads(done.stdout)["gpus"][0]["processes"]
    return {one["pid"]: one["kernels_finished"] for one in live}


def finished(node: PolicyNode, processes: list[subprocess.Popen[str]]) -> list[int]:
    counts = counts_of(node)
    return [counts.get(process.pid, 0) for process in processes]


def turns_pass(guests: list[Guest]) -> bool:
    before = words(guests)
    time.sleep(0.3)
    return words(guests) > before + 4


@pytest.mark.timed
def test_two_containers_work_what_they_were_promised(node: PolicyNode, tmp_path: Path) -> None:
    go = tmp_path / "go"
    guests = [node.container(core=core) for core in ("30", "70")]
    command = ["--seconds", "4", "--kernel-us", "1000", "--async", "16", "--wait-file", str(go)]
    both = [guest.start(WORKLOAD, "busy", *command) for guest in guests]
    with ending(start_keeper(node), *both):
        time.sleep(0.5)
        go.touch()
        said = [process.communicate(timeout=60)[0] for process in both]
        shares = [json.loads(one)["share"] for one in said]
    assert shares == [pytest.approx(0.30, abs=0.03), pytest.approx(0.70, abs=0.03)]


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGSTOP], ids=["killed", "stopped"])
def test_containers_work_on_without_their_keeper(node: PolicyNode, number: int) -> None:
    guests = [node.container(core=core) for core in ("30", "70")]
    keeper = start_keeper(node)
    busy = [node.busy(guest, MOST_SECONDS) for guest in guests]
    with ending(keeper, *busy):
        until(lambda: turns_pass(guests))
        keeper.send_signal(number)
        # All are on their own rates within a second; a busy machine takes longer.
        time.sleep(2)
        before = finished(node, busy)
        until(lambda: all(b > a + 20 for a, b in zip(before, finished(node, busy))))


def test_a_new_keeper_takes_over_and_no_container_fails(node: PolicyNode) -> None:
    guests = [node.container(core=core) for core in ("30", "70")]
    old = start_keeper(node)
    busy = [node.busy(guest, 6) for guest in guests]
    with ending(old, *busy):
        until(lambda: turns_pass(guests))
        new = start_keeper(node)
        with ending(new):
            # One at a time: it waits for the lock of the old one.
            time.sleep(0.3)
            assert (old.poll(), new.poll()) == (None, None)
            old.terminate()
            assert old.wait(MOST_SECONDS) == 0
            until(lambda: turns_pass(guests))
            for process in busy:
                out, err = process.communicate(timeout=MOST_SECONDS)
                assert (process.returncode, err) == (0, "")
                assert json.loads(out)["kernels"] > 0
            assert new.poll() is None


@pytest.mark.parametrize(("behind_s", "goes_on"), [(-0.6, True), (3600, True), (3, False)])
def test_lease_of_another_clock_counts_as_over(
    node: PolicyNode, behind_s: float, goes_on: bool
) -> None:
    """As in a time namespace of the container's with a clock that far behind the keeper's. The
    software GPU has the host's clock, so the lease is written as that keeper would.
    """
    guest = node.container(core="30")
    write_turn(guest, WAIT, lease_s=behind_s)
    busy = node.busy(guest, MOST_SECONDS)
    with ending(busy):
        until(lambda: bool(counts_of(node)))
        time.sleep(1)
        if goes_on:
            until(lambda: finished(node, [busy])[0] > 20)
        assert (finished(node, [busy])[0] > 0) == goes_on


def test_stopped_process_with_an_empty_queue_holds_up_no_neighbour(node: PolicyNode) -> None:
    """It rests for nearly all of its time, so it is stopped in a rest."""
    guests = [node.container(core=core) for core in ("30", "70")]
    keeper = start_keeper(node)
    rests = [
        "--seconds",
        str(MOST_SECONDS),
        "--kernel-us",
        "50",
        "--async",
        "0",
        "--gap-us",
        "20000",
    ]
    resting = guests[0].start(WORKLOAD, "busy", *rests)
    busy = node.busy(guests[1], MOST_SECONDS)
    with ending(keeper, resting, busy):
        until(lambda: turns_pass(guests))
        resting.send_signal(signal.SIGSTOP)
        time.sleep(0.2)
        (stopped, before) = finished(node, [resting, busy])
        until(lambda: finished(node, [resting, busy])[1] > before + 200)
        assert finished(node, [resting, busy])[0] == stopped
        resting.send_signal(signal.SIGCONT)
        until(lambda: finished(node, [resting, busy])[0] > stopped + 10)
        keeper.terminate()
        assert keeper.stderr and keeper.stderr.read() == b""


ALWAYS_RINGING = RINGING.replace("0.0001", "0")


# Often between the keeper's look at the size and its reading.
CUTTING = """
while True:
    os.ftruncate(page, 0); os.ftruncate(page, layout.USAGE_SIZE)
"""


@pytest.mark.parametrize(
    "script", [ALWAYS_RINGING, CLOSING, CUTTING], ids=["rings", "closes", "cuts"]
)
def test_a_page_that_changes_all_the_time_costs_the_keeper_little(
    node: PolicyNode, script: str
) -> None:
    guests = [node.container(core=core) for core in ("30", "70")]
    keeper = start_keeper(node)
    busy = [node.busy(guest, MOST_SECONDS) for guest in guests]
    with ending(keeper, *busy):
        until(lambda: turns_pass(guests))  # no program starts on a page that is cut
        given = json.dumps({"usage": [guest.usage for guest in guests]})
        ringing = subprocess.Popen(
            [PYTHON, "-c", PAGE + script, given],
            env={"PATH": os.environ["PATH"], "PYTHONPATH": os.path.join(ROOT, "oci")},
        )
        with ending(ringing):
            time.sleep(0.5)
            until(lambda: turns_pass(guests))
            before, began = processor_seconds(keeper.pid), time.monotonic()
            time.sleep(2)
            used = (processor_seconds(keeper.pid) - before) / (time.monotonic() - began)
            assert (keeper.poll(), ringing.poll()) == (None, None)
            assert used <= 0.1
