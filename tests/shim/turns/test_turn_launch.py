"""What a launch inside a turn takes, counted in instructions; `make bench` measures the time.

The driver is a mock that does nothing, and the test writes the turn word in the keeper's place.
"""

from __future__ import annotations

import json
import os
import signal
import statistics
import subprocess
from collections.abc import Callable
from typing import NamedTuple

import pytest

from shim.conftest import LIBRARIES, Clients
from support.gpu.guest import GIB, Guest
from support.gpu.turn_word import HELD, NONE, WAIT, write_turn
from support.waiting import until

LAUNCHES = 300
CALLS = 1_000_000
ENDLESS = 4_000_000_000
# Instructions that the shim adds to a launch; its eleven arguments take many of them.
MOST_ADDED = 80
# Of the launches: the others are measured, or take new credit.
ON_CREDIT = 0.98


class Launch(NamedTuple):
    instructions: int
    locked: int
    calls: int


@pytest.fixture
def guest(new_mock_guest: Callable[..., Guest]) -> Guest:
    return new_mock_guest(GIB)


def steps(found: str) -> list[Launch]:
    return [Launch(*numbers) for numbers in json.loads(found)]


def bare(guest: Guest, *command: str) -> str:
    """What a command prints on the driver alone."""
    libraries = os.path.join(guest.driver_root, LIBRARIES)
    environment = {"LD_LIBRARY_PATH": libraries}
    return subprocess.run(
        command, env=environment, check=True, capture_output=True, text=True
    ).stdout


@pytest.mark.parametrize("others", [0, 1], ids=["one thread", "two threads"])
def test_launch_in_a_turn_takes_few_instructions_no_lock_and_no_call(
    guest: Guest, client: Clients, others: int
) -> None:
    command = (client("stepped"), "steps", str(others), str(LAUNCHES))
    write_turn(guest, HELD)
    held = steps(guest.run(*command))
    write_turn(guest, NONE)
    outside = steps(guest.run(*command))
    driver = steps(bare(guest, *command))
    assert len(held) == len(driver) == LAUNCHES
    usual = statistics.mode(held)
    assert usual == statistics.mode(outside)
    assert usual.instructions - max(driver).instructions <= MOST_ADDED
    assert (usual.locked, held.count(usual) >= ON_CREDIT * LAUNCHES) == (0, True)
    assert {launch.calls for launch in held} == {0}


def test_a_million_launches_in_a_turn_make_no_system_call(guest: Guest, client: Clients) -> None:
    write_turn(guest, HELD)
    assert guest.run(client("stepped"), "calls", "0", str(CALLS)) == f"{CALLS}\n"


def test_a_launch_that_waits_for_its_turn_makes_one(guest: Guest, client: Clients) -> None:
    write_turn(guest, HELD)
    process = guest.start(client("stepped"), "calls", "0", str(ENDLESS))
    try:
        until(lambda: filters(process.pid) > filters(os.getpid()))
        write_turn(guest, WAIT)
        assert process.wait(60) == -signal.SIGSYS
    finally:
        process.kill()
        process.communicate()


def filters(pid: int) -> int:
    """How many system call filters the process has."""
    with open(f"/proc/{pid}/status", encoding="ascii") as status:
        (line,) = [line for line in status if line.startswith("Seccomp_filters:")]
    return int(line.split()[1])
