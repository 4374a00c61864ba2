"""A container locks and leases its usage page in every way; its neighbour keeps its share.

Mandatory locks are not tried: Linux 5.15 removed them.
"""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path

import pytest

from shim.conftest import DriverRoot
from shim.policy_node import TURN_KEEPER, PolicyNode
from shim.turns.test_turns_real_time import MOST_SECONDS, ending, turns_pass
from support.files import ROOT
from support.gpu.guest import PYTHON
from support.ledger.lease_holder import holding
from support.shares import loads
from support.shares.false_pages import PAGE
from support.shares.judge import MODELS, Tenant, judge
from support.shares.keeper_cost import processor_seconds
from support.shares.loads import Load
from support.waiting import until

pytestmark = pytest.mark.usefixtures("built")

# Each query of a slot's lock walks them.
THOUSANDS = """
time.sleep(0.5)
for number in range(4096, 0, -1):
    lock = struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * number + (1 << 41), 1, 0)
    fcntl.fcntl(page, 37, lock)  # F_OFD_SETLK
    fcntl.lockf(page, fcntl.LOCK_EX | fcntl.LOCK_NB, 1, 2 * number)
print("true", flush=True)
time.sleep(3600)
"""

# All that others can want, taken and dropped fifty times a second.
EVERYTHING = """
time.sleep(0.5)
began, SET, OFD_SET = time.monotonic(), fcntl.F_SETLK, 37
got = set()
def lock(how, kind, begin, length):
    try:
        fcntl.fcntl(page, how, struct.pack("hhqqi4x", kind, 0, begin, length, 0))
        got.add(how)
    except OSError:
        pass
def lease(fd, kind):
    try:
        fcntl.fcntl(fd, fcntl.F_SETLEASE, kind)
        got.add("lease")
    except OSError:
        pass
while time.monotonic() < began + 9:
    for how in (SET, OFD_SET):
        lock(how, fcntl.F_WRLCK, 0, layout.USAGE_SIZE)
        for slot in range(256):
            lock(how, fcntl.F_WRLCK, layout.USAGE_LOCK_BASE + slot, 1)
    again = os.open(given["usage"][0], os.O_RDONLY)
    for fd in (page, again):
        for kind in (fcntl.F_WRLCK, fcntl.F_RDLCK):
            lease(fd, kind)
    time.sleep(0.01)
    for how in (SET, OFD_SET):
        lock(how, fcntl.F_UNLCK, 0, 0)
    os.close(again)
    time.sleep(0.01)
print(json.dumps(sorted(map(str, got))), flush=True)
time.sleep(3600)
"""

# More of them, and marks in many slots: the keeper has to ask for the lock of each.
MARKED = """
put(at["usage.slots_used"], 256, 4)
for slot in range(200, 256):
    mark(slot, 3)
for number in range(20000, 0, -1):
    fcntl.fcntl(page, 37, struct.pack("hhqqi4x", fcntl.F_WRLCK, 0, 2 * number + (1 << 41), 1, 0))
print("true", flush=True)
time.sleep(3600)
"""


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda one: one.name)
@pytest.mark.parametrize(
    ("script", "said"),
    [(THOUSANDS, "true\n"), (EVERYTHING, '["37", "6"]\n')],
    ids=["thousands of locks", "every lock and lease"],
)
def test_locks_on_a_page_take_no_work_from_a_neighbour(script: str, said: str, load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + script])
    assert (outcome.said, outcome.errors, outcome.keeper_survived) == ([said], "", True)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)


@pytest.mark.parametrize("what", ["write lease", "write lease anew", "flock"])
def test_a_leased_page_delays_no_turn_of_other_containers(
    what: str, host: DriverRoot, tmp_path: Path
) -> None:
    """In real time: an open of a leased file blocks for 45 s, where the program is not careful."""
    node = PolicyNode(str(tmp_path / "node"), host.path)
    guests = [node.container(core=core) for core in ("10", "30", "60")]
    with holding(what, guests[0].usage):
        command = [TURN_KEEPER, node.state_dir, str(os.getpid())]
        keeper = subprocess.Popen(command, stderr=subprocess.PIPE)
        busy = [node.busy(guest, MOST_SECONDS) for guest in guests[1:]]
        with ending(keeper, *busy):
            until(lambda: turns_pass(guests[1:]))
            assert keeper.poll() is None


def test_thousands_of_locks_cost_the_keeper_little(host: DriverRoot, tmp_path: Path) -> None:
    """In real time, as the part of a core that the keeper uses."""
    node = PolicyNode(str(tmp_path / "node"), host.path)
    guests = [node.container(core=core) for core in ("30", "70")]
    keeper = subprocess.Popen(
        [TURN_KEEPER, node.state_dir, str(os.getpid())], stderr=subprocess.PIPE
    )
    given = json.dumps({"usage": [guest.usage for guest in guests]})
    locking = subprocess.Popen(
        [PYTHON, "-c", PAGE + MARKED, given],
        env={"PATH": os.environ["PATH"], "PYTHONPATH": os.path.join(ROOT, "oci")},
        stdout=subprocess.PIPE,
    )
    busy = [node.busy(guest, MOST_SECONDS) for guest in guests]
    with ending(keeper, locking, *busy):
        assert locking.stdout and locking.stdout.readline() == b"true\n"
        until(lambda: turns_pass(guests))
        before, began = processor_seconds(keeper.pid), time.monotonic()
        time.sleep(2)
        used = (processor_seconds(keeper.pid) - before) / (time.monotonic() - began)
        assert (keeper.poll(), locking.poll()) == (None, None)
        assert used <= 0.1
