"""A suspended container holds no turn and pays for none, in virtual time."""

from __future__ import annotations

import subprocess
import time
from collections.abc import Callable

import pytest

from shim.conftest import Clients
from support.gpu.guest import GIB, Guest
from support.shares import loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load
from support.shares.suspension import SUSPEND
from vcuda_oci.pages import layout

pytestmark = pytest.mark.usefixtures("built", "short_windows")
LOADS = [loads.AHEAD, loads.WAITED, loads.MS_5, loads.COPIES]


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_a_container_alone_gets_its_share_of_the_time_that_it_was_awake(load: Load) -> None:
    outcome = judge(MODELS["default"], [Tenant(50, load)], scripts=[SUSPEND], window_s=10)
    assert outcome.said == ["resumed\n"]
    assert 100 * outcome.tenants[0].work == pytest.approx(25, abs=1)


@pytest.mark.parametrize("load", LOADS, ids=lambda load: load.name)
def test_turns_pass_to_the_neighbour_and_come_back_without_debt(load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[SUSPEND], window_s=10)
    assert (outcome.said, outcome.errors) == (["resumed\n"], "")
    assert 100 * outcome.tenants[0].share == pytest.approx(15, abs=1)
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=1.5)


@pytest.mark.parametrize("suspended", [True, False], ids=["suspended", "only slow"])
@pytest.mark.parametrize("what", ["launch", "wait"])
def test_time_that_is_measured_across_a_suspension_is_not_charged(
    new_mock_guest: Callable[..., Guest], client: Clients, what: str, suspended: bool
) -> None:
    """The mock driver's event pair shows a second, and the wait lasts as long."""
    guest = new_mock_guest(GIB)
    process = guest.start(client("slept"), what, stdin=subprocess.PIPE)
    assert process.stdout
    assert process.stdout.readline() == "ready\n"
    if suspended:
        guest.suspend(layout.SUSPENDED)
    time.sleep(1)
    if suspended:
        guest.suspend(layout.AWAKE)
    out, err = process.communicate("\n", timeout=30)
    assert (process.returncode, out, err) == (0, "", "")
    charged_ms = guest.read_usage().gpus[0].busy_ns / 1e6
    assert charged_ms < 100 if suspended else charged_ms > 900
