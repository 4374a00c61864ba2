"""Low latency: a container that has rested cuts into the turns of others, in virtual time."""

from __future__ import annotations

import dataclasses
import os
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from support.files import ROOT
from support.shares import deaths, loads
from support.shares.false_pages import (
    BUSY_FOR_EVER,
    FLIPS,
    NEVER_BUSY,
    PAGE,
    RANDOM,
    RINGING,
    TRUNCATED,
    WANTS_FOR_EVER,
)
from support.shares.judge import MODELS, Outcome, Tenant, judge, window_of
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built", "short_windows")

LOW = (("latency", "low"),)
# Prints budget and urgent time of one that cuts in, and the budget of the holder, in microseconds.
PRICES = """
#include <stdio.h>
#include "keeper/cut_in.h"
void tenant_publish (const struct tenant *tenant) { (void) tenant; }
void tenant_take_over_bucket (struct tenant *tenant, uint64_t alone_ns, uint64_t now)
{ (void) tenant, (void) alone_ns, (void) now; }
static struct tenant one = { .low = true,
                             .claim = { .rate_ppm = 300000, .wants = true, .turn_ns = 15 * MS } };
static struct tenant holder = { .claim = { .budget_ns = 10 * MS } };
static struct tenant *both[] = { &one, &holder };
static struct gpu gpu = { .tenants = both, .count = 2, .holder = &holder };
static void
say (void)
{
  printf ("%d %d %d\\n", (int) (one.claim.budget_ns / 1000), (int) (one.urgent_ns / 1000),
          (int) (holder.claim.budget_ns / 1000));
}
int main (int argc, char **argv)
{
  (void) argv;
  one.claim.budget_ns = one.urgent_ns = 4 * MS;
  gpu.pays = argc > 1;
  cut_in_interrupt (&gpu, &one);
  say ();
  cut_in_begin (&gpu, &one, 1000 * MS); /* what it has paid is not paid again */
  say ();
  gpu.interrupter = NULL;
  cut_in_begin (&gpu, &one, 2000 * MS);
  say ();
  cut_in_pass_time (&one, 10 * MS, 0, false);
  say ();
  cut_in_pass_time (&one, 10 * MS, 0, true); /* while it waits, it saves nothing */
  cut_in_pass_time (&one, MS, MS, false);
  say ();
  cut_in_pass_time (&one, 1000 * MS, 0, false);
  say ();
}
"""
REQUESTS = loads.REQUESTS


@pytest.mark.parametrize(
    ("words", "holders"), [(["pays"], 10200), ([], 10000)], ids=["turn", "alone"]
)
def test_cutting_in_costs_half_a_millisecond(
    tmp_path: Path, words: list[str], holders: int
) -> None:
    """Once for each time. Of that the holder of a turn gets 0.2 ms; one alone pays for its work."""
    source, program = tmp_path / "prices.c", str(tmp_path / "prices")
    source.write_text(PRICES)
    folder = os.path.join(ROOT, "libvcuda", "turns")
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", f"-I{folder}", f"-I{ROOT}/libvcuda"]
    files = [os.path.join(folder, name) for name in ("keeper/cut_in.c", "tenant/queue.c")]
    subprocess.run([*command, "-o", program, str(source), *files], check=True)
    said = subprocess.run([program, *words], check=True, capture_output=True, text=True).stdout
    assert [tuple(map(int, line.split())) for line in said.splitlines()] == [
        (3500, 3500, holders),
        (3500, 3500, holders),
        (3000, 3000, holders),
        (3000, 6000, holders),  # 30 % of 10 ms
        (3000, 5300, holders),
        (3000, 30000, holders),
    ]


def p99_ms(outcome: Outcome) -> float:
    """Of the first container's requests, without their own work."""
    return float(outcome.tenants[0].report["p99_us"] - REQUESTS.kernel_us) / 1e3


def beside(model: str, load: Load, words: Sequence[tuple[str, str]] = LOW) -> Outcome:
    tenants = [Tenant(30, REQUESTS, tuple(words)), Tenant(70, load)]
    return judge(MODELS[model], tenants, window_s=20)


@pytest.mark.parametrize("model", ["default", "slice 0.5 ms", "switch 500 us"])
@pytest.mark.parametrize(
    "load", [loads.AHEAD, loads.MS_25, loads.MS_300], ids=lambda load: load.name
)
def test_a_request_of_low_latency_cuts_into_a_neighbours_turn(model: str, load: Load) -> None:
    outcome = beside(model, load)
    assert p99_ms(outcome) <= 10
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=2)


def test_a_request_of_normal_latency_waits_for_a_long_kernel() -> None:
    assert p99_ms(beside("default", loads.MS_300, ())) > 200


@pytest.mark.parametrize(
    ("model", "bound_ms"), [("no preemption", 305), ("slice 30 ms", 35)], ids=["rest", "slice"]
)
def test_where_a_kernel_cannot_be_cut_a_request_waits_for_the_driver(
    model: str, bound_ms: float
) -> None:
    outcome = beside(model, loads.MS_300)
    assert p99_ms(outcome) <= bound_ms
    assert outcome.tenants[1].work >= 0.68


def test_without_preemption_the_neighbour_pays_for_its_own_kernels() -> None:
    """Nothing of them is divided, once cutting in has been of no use."""
    outcome = beside("no preemption", loads.MS_300)
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=1)
    assert outcome.tenants[0].held <= 0.05


@pytest.mark.parametrize("model", ["default", "slice 30 ms", "no preemption"])
@pytest.mark.parametrize(
    ("one", "other"),
    [
        (loads.AHEAD, loads.AHEAD),
        (loads.AHEAD, loads.MS_25),
        (loads.MS_25, loads.AHEAD),
        (loads.WAITED, loads.MS_300),
    ],
    ids=lambda load: load.name,
)
def test_a_container_always_at_work_takes_turns_in_spite_of_low_latency(
    model: str, one: Load, other: Load
) -> None:
    outcome = judge(MODELS[model], [Tenant(30, one, LOW), Tenant(70, other)])
    assert 100 * outcome.tenants[0].share == pytest.approx(30, abs=2)
    assert 100 * outcome.tenants[1].share == pytest.approx(70, abs=2)
    assert outcome.lost(1) <= 0.03


def test_one_of_low_latency_does_not_cut_into_the_turn_of_another() -> None:
    tenants = [Tenant(30, REQUESTS, LOW), Tenant(70, loads.MS_300, LOW)]
    outcome = judge(MODELS["default"], tenants, window_s=20)
    assert 200 < p99_ms(outcome) <= 305


def test_requests_of_several_low_latency_containers_all_cut_in() -> None:
    tenants = [Tenant(20, REQUESTS, LOW)] * 3 + [Tenant(40, loads.MS_300)]
    outcome = judge(MODELS["default"], tenants, window_s=20)
    waits = [got.report["p99_us"] / 1e3 for got in outcome.tenants[:3]]
    assert max(waits) <= 15
    assert 100 * outcome.tenants[3].share == pytest.approx(40, abs=2)


def test_two_neighbours_keep_their_shares_beside_low_latency() -> None:
    tenants = [Tenant(30, REQUESTS, LOW), Tenant(40, loads.MS_25), Tenant(30, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, window_s=20)
    assert p99_ms(outcome) <= 10
    assert [100 * got.share for got in outcome.tenants[1:]] == [
        pytest.approx(40, abs=2),
        pytest.approx(30, abs=2),
    ]


CHANGED = """
import json, sys, time
from vcuda_oci.ledger import resize
from vcuda_oci.ledger.ledger import Ledger
time.sleep(0.1)
with Ledger(json.loads(sys.argv[1])["state"]) as ledger:
    for allocation in ledger.read()[0]:
        if allocation.id == "c0":
            shares = [share.replaced(latency="low") for share in allocation.shares]
            resize.change(ledger, allocation, shares)
time.sleep(3600)
"""


@pytest.mark.parametrize("every_ms", [49, 51])
def test_a_neighbour_has_its_share_beside_requests_of_any_period(every_ms: int) -> None:
    """Each request ends its time alone: what its thread and the queue have saved comes along."""
    asks = dataclasses.replace(REQUESTS, every_ms=every_ms)
    outcome = judge(MODELS["default"], [Tenant(30, asks), Tenant(70, loads.MS_25)], window_s=8)
    assert 100 * outcome.tenants[1].work == pytest.approx(70, abs=0.6)


def test_a_change_to_low_latency_counts_while_the_container_runs() -> None:
    tenants = [Tenant(30, REQUESTS), Tenant(70, loads.MS_300)]
    outcome = judge(MODELS["default"], tenants, window_s=60, scripts=[CHANGED])
    assert p99_ms(outcome) <= 10


@pytest.mark.parametrize(
    ("script", "load"),
    [
        (BUSY_FOR_EVER, None),
        (BUSY_FOR_EVER, loads.AHEAD),
        (WANTS_FOR_EVER, None),
        (RINGING, loads.AHEAD),
        (RINGING, REQUESTS),
        (NEVER_BUSY, loads.AHEAD),
        (TRUNCATED, loads.AHEAD),
        (RANDOM, loads.AHEAD),
        (FLIPS % 1, loads.AHEAD),
    ],
    ids=[
        "busy",
        "busy beside work",
        "wants",
        "rings",
        "rings between requests",
        "never busy",
        "cut",
        "random",
        "flips",
    ],
)
@pytest.mark.parametrize("other", [loads.AHEAD, loads.MS_300], ids=lambda load: load.name)
def test_a_false_page_with_low_latency_takes_no_work_from_a_neighbour(
    script: str, load: Load | None, other: Load
) -> None:
    tenants = [Tenant(30, load, LOW), Tenant(70, other)]
    # Where the first doubt ends, the others wait once more and get the time back.
    window_s = min(20, max(window_of(tenants), 10 if script == BUSY_FOR_EVER else 0))
    outcome = judge(MODELS["default"], tenants, window_s=window_s, scripts=[PAGE + script])
    # A bell that rings so often is muted: the long kernels beside its requests get 72.2 then.
    most = 2.5 if (load, other) == (REQUESTS, loads.MS_300) else 2
    assert -2 <= 100 * outcome.tenants[1].work - 70 <= most
    assert outcome.keeper_survived


# Its kernels run, and its page says that they do not.
HIDES = """
while True:
    for slot in range(4):
        place = FIRST + slot * SLOT + at["usage_slot.turn_marks"]
        marks = int.from_bytes(os.pread(page, 8, place), "little")
        if marks & 1:
            put(place, marks & 4, 8)
    time.sleep(0.0001)
"""


@pytest.mark.parametrize("other", [loads.AHEAD, loads.MS_25], ids=lambda load: load.name)
@pytest.mark.parametrize("load", [loads.AHEAD, loads.MS_5], ids=lambda load: load.name)
def test_hidden_work_takes_no_more_with_low_latency_than_in_turns(load: Load, other: Load) -> None:
    works = []
    for words in (LOW, ()):
        tenants = [Tenant(30, load, words), Tenant(70, other)]
        outcome = judge(MODELS["default"], tenants, scripts=[PAGE + HIDES])
        works.append(100 * outcome.tenants[1].work)
    assert works[0] >= works[1] - 1
    assert works[0] >= 68


RESTS_AND_WANTS = """
claim(5)
while True:
    mark(5, 4); ring()
    time.sleep(0.0005)
    mark(5, 0); ring()
    time.sleep(0.002)
"""


def test_a_container_that_cuts_in_for_nothing_takes_no_work_from_others() -> None:
    """What it pays beside a long kernel, that kernel's container gains."""
    tenants = [Tenant(30, None, LOW), Tenant(40, loads.MS_25), Tenant(30, loads.AHEAD)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + RESTS_AND_WANTS])
    assert [got.work > core / 100 - 0.02 for got, core in zip(outcome.tenants[1:], (40, 30))] == [
        True,
        True,
    ]
    assert outcome.tenants[0].held <= 0.32


# It takes its wish back before the turn begins for which it ended another.
CUTS_AND_LEAVES = """
claim(5)
begun = 0
while True:
    begun += 20
    put(GPU + at["usage_gpu.work_begun"], begun, 4); mark(5, 4); ring()
    time.sleep(0.00005)
    mark(5, 0); ring()
    time.sleep(0.0001)
"""


def test_a_container_that_ends_turns_for_nothing_pays_for_each() -> None:
    tenants = [Tenant(2, None, LOW), Tenant(49, loads.MS_1), Tenant(49, loads.MS_1)]
    outcome = judge(MODELS["default"], tenants, scripts=[PAGE + CUTS_AND_LEAVES], window_s=4)
    assert sum(got.work for got in outcome.tenants) >= 0.96


@pytest.mark.parametrize("moment_s", ["4.0512", "4.1009", "4.2503"])
def test_a_keeper_killed_while_a_request_cuts_in_leaves_no_container_stuck(
    moment_s: str,
) -> None:
    killed = deaths.upgrade(0.01).replace("SIGTERM", "SIGKILL").replace("4.005", moment_s)
    tenants = [Tenant(30, REQUESTS, LOW), Tenant(70, loads.MS_300)]
    outcome = judge(MODELS["default"], tenants, scripts=[killed], keepers=2)
    assert (outcome.said, outcome.errors, outcome.keeper_survived) == (["true\n"], "", True)
    assert [100 * got.work for got in outcome.tenants] == [
        pytest.approx(2, abs=0.2),
        pytest.approx(70, abs=2),
    ]
    assert max(got.report["longest_us"] for got in outcome.tenants) <= 1_000_000


def test_a_holder_killed_while_another_cuts_into_its_turn_holds_up_none() -> None:
    """Its kernel ends with it; the others go on."""
    script = """
import json, os, sys, time
time.sleep(4.0515)
os.kill(json.loads(sys.argv[1])["pids"][1], 9)
print("true")
"""
    tenants = [Tenant(30, REQUESTS, LOW), Tenant(40, loads.MS_300), Tenant(30, loads.MS_5)]
    outcome = judge(MODELS["default"], tenants, scripts=[script], warming_s=5)
    assert (outcome.said, outcome.keeper_survived) == (["true\n"], True)
    assert p99_ms(outcome) <= 10
    assert 100 * outcome.tenants[2].share == pytest.approx(30, abs=2)
