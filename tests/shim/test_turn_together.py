"""Light programs use a GPU at the same time, without turns."""

from __future__ import annotations

import pytest

from shim.test_turn_hostile import NEVER_BUSY, PAGE
from support.shares import loads
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built")
ELASTIC = (("policy", "elastic"),)
GAPS = Load("gaps", 50, gap_us=300)
# What such a program works alone: 50 of 350 us, and the time that the host needs.
ALONE = 0.14


def together(*tenants: Tenant, scripts: tuple[str, ...] = ()) -> Outcome:
    return judge(MODELS["default"], tenants, arbiter=True, scripts=scripts)


def test_light_elastic_containers_pass_no_turns() -> None:
    outcome = together(Tenant(50, GAPS, ELASTIC), Tenant(50, GAPS, ELASTIC))
    assert outcome.words == 0
    assert outcome.wakes <= 60 * outcome.window_s  # it looks fifty times a second
    # The driver's switches cost the rest.
    assert [got.work > 0.75 * ALONE for got in outcome.tenants] == [True, True]


def test_a_fixed_share_keeps_its_turns() -> None:
    outcome = together(Tenant(50, GAPS), Tenant(50, GAPS, ELASTIC))
    assert outcome.words > 1000


def test_a_saturating_container_brings_turns_back() -> None:
    """It gets what the others leave, and no kernel of theirs runs in its turns."""
    light = [Tenant(30, GAPS, ELASTIC)] * 2
    outcome = together(*light, Tenant(40, loads.AHEAD))
    assert outcome.words > 1000
    assert 100 * outcome.tenants[2].held == pytest.approx(40, abs=2)
    assert 100 * outcome.tenants[2].work == pytest.approx(40, abs=2)


def test_hidden_work_takes_nothing_from_a_light_neighbour() -> None:
    """Its page says that it never works. The neighbour's own event pairs show that it does."""
    tenants = [Tenant(50, loads.AHEAD, ELASTIC), Tenant(50, GAPS, ELASTIC)]
    outcome = together(*tenants, scripts=(PAGE + NEVER_BUSY,))
    assert outcome.tenants[1].work > 0.9 * ALONE
