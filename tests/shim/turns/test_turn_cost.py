"""What the turn keeper takes of the host: memory, and how often it wakes."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from shim.turns.test_turn_figures import WANTS, mark
from support.ledger.samples import GIB
from support.ledger.tenants import Tenants
from support.shares import keeper_cost, loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load
from support.waiting import until
from vcuda_hook.live import turn_figures
from vcuda_oci.model.allocation import GpuShare

pytestmark = pytest.mark.usefixtures("built")

GPUS = 8
MOST_KIB = 4096


@pytest.fixture
def tenants(tmp_path: Path) -> Iterator[Tenants]:
    made = Tenants(str(tmp_path))
    yield made
    made.close()


def status_of(process: subprocess.Popen[bytes]) -> dict[str, str]:
    with open(f"/proc/{process.pid}/status", encoding="ascii") as lines:
        return dict(line.rstrip("\n").split(":\t", 1) for line in lines if ":\t" in line)


def test_keeper_of_eight_contended_gpus_takes_4_mib_at_most(tenants: Tenants) -> None:
    for gpu in range(GPUS):
        for id in (f"one-{gpu}", f"other-{gpu}"):
            tenants.add_record(id, shares=[GpuShare(f"GPU-{gpu}", 4 * GIB, 50)])
            tenants.uses(id)
            mark(tenants, id, WANTS)
    keeper = subprocess.Popen([keeper_cost.SHIPPED, tenants.state_dir, str(os.getpid())])
    try:

        def turns_held() -> list[int]:
            turns = turn_figures.read(tenants.state_dir)
            return [sum(of.held_ns > 0 for of in one.of.values()) for one in turns.values()]

        until(lambda: turns_held() == [2] * GPUS, lambda: str(turns_held()))
        status = status_of(keeper)
        # Each GPU has its thread.
        assert status["Threads"] == str(1 + GPUS)
        assert int(status["VmHWM"].split()[0]) <= MOST_KIB
    finally:
        keeper.kill()
        keeper.wait()


@pytest.mark.parametrize(
    ("most", "chosen"),
    [
        (75, (loads.AHEAD, loads.AHEAD)),
        (130, (loads.WAITED, loads.WAITED)),
        (45, (loads.MS_5, loads.MS_5)),
        (150, (loads.MS_300, loads.WAITED)),
        (60, (loads.GRAPHS, loads.COPIES)),
    ],
    ids=lambda each: " and ".join(load.name for load in each) if isinstance(each, tuple) else each,
)
def test_keeper_wakes_a_few_times_a_turn(most: int, chosen: Sequence[Load]) -> None:
    """In a second, for one contended GPU; each has a thread of its own. A turn of the larger share
    goes on until the smaller one has earned its own. `make bench` measures the time.
    """
    tenants = [Tenant(core, load) for core, load in zip((30, 70), chosen, strict=True)]
    outcome = judge(MODELS["default"], tenants)
    assert 20 < outcome.wakes / outcome.window_s <= most
