"""Turns on a kernel before Linux 5.16, which lacks futex_waitv: the keeper polls."""

from __future__ import annotations

import ctypes
import os
import struct
import subprocess
import time
from collections.abc import Sequence
from pathlib import Path

import pytest

from shim.conftest import DriverRoot
from shim.policy_node import PolicyNode
from shim.turns.test_turns_real_time import MOST_SECONDS, ending, turns_pass
from support.gpu.guest import BUILD
from support.shares import loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load
from support.waiting import until

pytestmark = pytest.mark.usefixtures("built", "short_windows")


@pytest.mark.parametrize("model", ["default", "slice 30 ms", "no preemption"])
@pytest.mark.parametrize(
    ("cores", "chosen"),
    [
        ((30, 70), (loads.AHEAD, loads.AHEAD)),
        ((20, 40), (loads.WAITED, loads.COPIES)),
        ((90, 10), (loads.WAITED, loads.MS_25)),
        ((50, 50), (loads.GRAPHS, loads.MS_5)),
        ((12,) * 8, (loads.AHEAD,) * 8),
    ],
    ids=["30/70", "20/40", "90/10", "50/50", "eight at 12"],
)
def test_shares_hold_where_the_keeper_polls(
    model: str, cores: Sequence[int], chosen: Sequence[Load]
) -> None:
    """A pass takes up to a millisecond longer, of a turn of 15 to 30 ms."""
    tenants = [Tenant(core, load) for core, load in zip(cores, chosen, strict=True)]
    outcome = judge(MODELS[model], tenants, without="futex_waitv")
    held = [100 * got.held for got in outcome.tenants]
    assert held == [pytest.approx(core, abs=2) for core in cores]
    assert outcome.lost(sum(cores) / 100) <= 0.05
    assert outcome.errors == ""
    # It polls once in a millisecond, and where a holder rests it looks in between.
    assert 900 <= outcome.wakes / outcome.window_s <= 2000


# The shipped program, which is static and for this machine.
SHIPPED = os.path.join(BUILD, "lib", "vcuda-turn-keeper")
FUTEX_WAITV, ENOSYS = 449, 38
# Sources: linux/bpf_common.h, linux/seccomp.h, linux/prctl.h.
LOAD, EQUAL, RETURN = 0x20, 0x15, 0x06
ALLOW, FAIL = 0x7FFF0000, 0x00050000
NO_NEW_PRIVILEGES, SECCOMP, FILTER = 38, 22, 2
INSTRUCTIONS = [
    (LOAD, 0, 0, 0),  # the call's number
    (EQUAL, 0, 1, FUTEX_WAITV),
    (RETURN, 0, 0, FAIL | ENOSYS),
    (RETURN, 0, 0, ALLOW),
]


def lack_futex_waitv() -> None:
    """For this process and what it executes the call fails, as on an older kernel."""
    code = b"".join(struct.pack("=HBBI", *instruction) for instruction in INSTRUCTIONS)
    program = ctypes.create_string_buffer(code)
    given = struct.pack("@HP", len(INSTRUCTIONS), ctypes.addressof(program))
    libc = ctypes.CDLL(None)
    assert libc.prctl(NO_NEW_PRIVILEGES, 1, 0, 0, 0) == 0
    assert libc.prctl(SECCOMP, FILTER, given, 0, 0) == 0


def test_turns_pass_by_the_shipped_keeper_without_futex_waitv(
    host: DriverRoot, tmp_path: Path
) -> None:
    """In real time: a witness that no bell is needed."""
    node = PolicyNode(str(tmp_path / "node"), host.path)
    guests = [node.container(core=core) for core in ("30", "70")]
    command = [SHIPPED, node.state_dir, str(os.getpid())]
    keeper = subprocess.Popen(command, stderr=subprocess.PIPE, preexec_fn=lack_futex_waitv)
    busy = [node.busy(guest, MOST_SECONDS) for guest in guests]
    with ending(keeper, *busy):
        until(lambda: turns_pass(guests))
        # A sleep in the call would never end here: its bells ring for the poll alone.
        before = polls(keeper)
        time.sleep(0.5)
        assert polls(keeper) - before > 50
        assert keeper.poll() is None


def polls(process: subprocess.Popen[bytes]) -> int:
    """How often the threads beside the first one have slept."""
    total = 0
    for task in os.listdir(f"/proc/{process.pid}/task"):
        if int(task) != process.pid:
            with open(f"/proc/{process.pid}/task/{task}/status", encoding="ascii") as status:
                found = next(line for line in status if line.startswith("voluntary"))
            total += int(found.split()[1])
    return total
