"""The turn keeper, built with the address and undefined-behaviour sanitizers, beside pages of any
content: nothing is reported, and a neighbour works on."""

from __future__ import annotations

import os

import pytest

from support.gpu.guest import BUILD
from support.makefile import make
from support.shares import deaths, false_pages, loads
from support.shares.audit import AUDIT
from support.shares.judge import MODELS, Outcome, Tenant, judge

pytestmark = pytest.mark.usefixtures("built")
KEEPER = os.path.join(BUILD, "sanitize", "vcuda-turn-keeper")
LOW = (("latency", "low"), ("policy", "elastic"))


@pytest.fixture(scope="module")
def keeper() -> str:
    make("build/sanitize/vcuda-turn-keeper")
    return KEEPER


def check(outcome: Outcome) -> None:
    lines = outcome.errors.splitlines()
    assert [line for line in lines if not line.startswith("vcuda-turn-keeper: ")] == []
    assert outcome.keeper_survived


@pytest.mark.parametrize("seed", range(8))
def test_pages_of_any_content_and_size_break_nothing(keeper: str, seed: int) -> None:
    words = LOW if seed % 2 else ()
    tenants = [Tenant(30, loads.AHEAD, words), Tenant(70, loads.AHEAD)]
    scripts = [false_pages.PAGE + false_pages.FUZZ % seed, AUDIT]
    outcome = judge(MODELS["default"], tenants, window_s=2, scripts=scripts, program=keeper)
    check(outcome)
    assert outcome.tenants[1].work > 0.5


@pytest.mark.parametrize(
    "script", [deaths.holder_killed(0), deaths.upgrade(0.1)], ids=["killed", "replaced"]
)
def test_ends_amid_turns_break_nothing(keeper: str, script: str) -> None:
    tenants = [Tenant(30, loads.AHEAD), Tenant(70, loads.MS_5)]
    check(judge(MODELS["default"], tenants, scripts=[script], keepers=2, program=keeper))
