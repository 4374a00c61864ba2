"""Containers work on while the turn keeper is replaced, as by an upgrade of the agent."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from support.shares import deaths, loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built", "short_windows")


def check(model: str, tenants: Sequence[Tenant], away_s: float, window_s: float = 0) -> None:
    """Each container works as much as beside one keeper; a failed call would end its load."""
    script = deaths.upgrade(away_s)
    outcome = judge(MODELS[model], tenants, scripts=[script], keepers=2, window_s=window_s)
    assert (outcome.said, outcome.errors, outcome.keeper_survived) == (["true\n"], "", True)
    undisturbed = judge(MODELS[model], tenants, window_s=window_s)
    works, expected = ([100 * got.work for got in one.tenants] for one in (outcome, undisturbed))
    assert works == [pytest.approx(work, abs=2) for work in expected]
    # No wait is much longer than in turns.
    longest_us = [
        max(got.report["longest_us"] for got in one.tenants) for one in (outcome, undisturbed)
    ]
    assert longest_us[0] <= longest_us[1] + 50_000


@pytest.mark.parametrize("model", ["default", "slice 30 ms", "no preemption"])
@pytest.mark.parametrize(
    ("load", "other"),
    [(loads.AHEAD, loads.AHEAD), (loads.WAITED, loads.MS_25), (loads.GRAPHS, loads.MS_5)],
    ids=lambda load: load.name,
)
def test_a_new_keeper_leaves_each_container_its_share(model: str, load: Load, other: Load) -> None:
    check(model, [Tenant(30, load), Tenant(70, other)], 0)


@pytest.mark.parametrize("load", [loads.AHEAD, loads.WAITED, loads.MS_5], ids=lambda one: one.name)
def test_a_second_without_a_keeper_costs_no_container_its_share(load: Load) -> None:
    check("default", [Tenant(30, load), Tenant(70, load)], 1, window_s=10)
