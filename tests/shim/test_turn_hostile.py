"""A container writes false signals into its own page; its neighbour keeps its share."""

from __future__ import annotations

import pytest

from support.shares import loads
from support.shares.false_pages import (
    BUSY_FOR_EVER,
    FLIPS,
    HONEST,
    NEVER_BUSY,
    PAGE,
    RANDOM,
    RINGING,
    TRUNCATED,
    WANTS_FOR_EVER,
)
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built")


def report(what: str) -> str:
    return f"vcuda-turn-keeper: container c0 {what}; others go on without waiting for it\n"


ENDLESS = report("does not let its GPU queue end")
CUT = report("has cut its usage page short")
LIES = report("gives false signals of its GPU queue again and again")


def beside(script: str, working: bool) -> Outcome:
    """30 percent that write false signals, and 70 that do not."""
    tenants = [Tenant(30, loads.AHEAD if working else None), Tenant(70, loads.AHEAD)]
    return judge(MODELS["default"], tenants, scripts=[PAGE + script])


@pytest.mark.parametrize(
    ("script", "working", "errors"),
    [
        (HONEST, False, set()),
        (BUSY_FOR_EVER, False, {ENDLESS}),
        (BUSY_FOR_EVER, True, {ENDLESS}),
        (WANTS_FOR_EVER, False, set()),
        (RINGING, True, set()),
        (NEVER_BUSY, True, {LIES}),
        (TRUNCATED, True, {CUT}),
        (RANDOM, True, {LIES}),
    ],
    ids=["honest", "busy", "busy beside work", "wants", "rings", "never busy", "cut", "random"],
)
def test_a_false_page_takes_no_work_from_a_neighbour_and_is_reported(
    script: str, working: bool, errors: set[str]
) -> None:
    """Judged by work: a turn in which the driver slices another's kernels is not whole."""
    outcome = beside(script, working)
    assert (outcome.keeper_survived, set(outcome.errors.splitlines(True))) == (True, errors)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30.5


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
def test_a_container_that_cuts_its_page_gets_its_own_share_still(load: Load) -> None:
    tenants = [Tenant(30, load), Tenant(70, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + TRUNCATED])
    assert 100 * outcome.tenants[0].share == pytest.approx(30, abs=2)


@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
@pytest.mark.parametrize("seed", [1, 2, 3])
def test_fields_that_change_at_random_moments_take_no_work_from_a_neighbour(
    seed: int, load: Load
) -> None:
    tenants = [Tenant(30, load), Tenant(70, load)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + FLIPS % seed])
    assert outcome.keeper_survived
    assert set(outcome.errors.splitlines(True)) in ({ENDLESS}, {LIES}, {ENDLESS, LIES})
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=2)
    assert 100 * outcome.tenants[0].work <= 30
