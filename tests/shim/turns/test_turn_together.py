"""Light programs use a GPU at the same time, without turns."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.files import ROOT
from support.shares import loads
from support.shares.false_pages import NEVER_BUSY, PAGE
from support.shares.judge import MODELS, Outcome, Tenant, judge
from support.shares.loads import Load

pytestmark = pytest.mark.usefixtures("built")
ELASTIC = (("policy", "elastic"),)
GAPS = Load("gaps", 50, gap_us=300)
# What such a program works alone: 50 of 350 us, and the time that the host needs.
ALONE = 0.14
# Two containers that have used the GPU together for 20 ms, by their own figures: do they go on?
JUDGE = """
#include <stdio.h>
#include <stdlib.h>
#include "keeper/together.h"
bool tenant_is_recent (const struct tenant *tenant, uint64_t now) { return tenant && now; }
void tenant_open (struct tenant *tenant) { (void) tenant; }
void tenant_blocks (struct tenant *tenant, uint64_t now) { (void) tenant, (void) now; }
void tenant_take_over_bucket (struct tenant *tenant, uint64_t alone_ns, uint64_t now)
{ (void) tenant, (void) alone_ns, (void) now; }
void tenant_write_word (struct tenant *tenant, uint32_t state, uint64_t until_ns)
{ (void) tenant, (void) state, (void) until_ns; }
int main (int argc, char **argv)
{
  struct tenant one = { .joined = true }, other = { .joined = true };
  struct tenant *tenants[] = { &one, &other };
  struct gpu gpu = { .tenants = tenants, .count = argc - 1, .together = true };
  for (int i = 0; i < gpu.count; i++)
    tenants[i]->signals.busy_ns = strtoull (argv[i + 1], NULL, 10);
  together_judge (&gpu, 20 * MS);
  puts (gpu.together ? "together" : "turns");
}
"""


def together(*tenants: Tenant, scripts: tuple[str, ...] = ()) -> Outcome:
    return judge(MODELS["default"], tenants, arbiter=True, scripts=scripts)


def test_light_elastic_containers_pass_no_turns() -> None:
    outcome = together(Tenant(50, GAPS, ELASTIC), Tenant(50, GAPS, ELASTIC))
    assert outcome.words == 0
    assert outcome.wakes <= 60 * outcome.window_s  # it looks fifty times a second
    # The driver's switches cost the rest.
    assert [got.work > 0.75 * ALONE for got in outcome.tenants] == [True, True]


def elastic(model: str, cores: tuple[int, int], *, bare: bool = False) -> Outcome:
    tenants = [Tenant(core, loads.WAITED, ELASTIC) for core in cores]
    return judge(MODELS[model], tenants, arbiter=not bare, bare=bare)


def test_gaps_of_a_busy_program_are_used_where_a_switch_costs_nothing() -> None:
    """Gaps of 20 us between kernels of 50 us. With turns it is 70 % of the driver's work."""
    ours, driver = (elastic("kind", (50, 50), bare=bare).tenants for bare in (False, True))
    assert sum(got.work for got in ours) >= 0.97 * sum(got.work for got in driver)


def test_none_of_two_that_share_their_gaps_does_less_than_in_turns() -> None:
    """It would do 70 % of 30, and of 70."""
    one, other = elastic("kind", (30, 70)).tenants
    assert one.work > 0.3
    assert other.work > 0.95 * 0.7 * 0.7


def test_turns_go_on_where_a_switch_costs_more_than_gaps() -> None:
    """The driver alone gives them a third of the GPU together, and a short trial of it is lost."""
    outcome = elastic("default", (50, 50))
    assert outcome.words > 500
    assert sum(got.work for got in outcome.tenants) > 0.65


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
    """Its page says that it never works. The neighbour's own event pairs show that it does.

    An honest one that always works leaves such a neighbour a fiftieth of its work alone.
    """
    tenants = [Tenant(50, loads.AHEAD, ELASTIC), Tenant(50, GAPS, ELASTIC)]
    outcome = together(*tenants, scripts=(PAGE + NEVER_BUSY,))
    assert outcome.tenants[1].work > 0.2 * ALONE


@pytest.mark.parametrize(
    ("figures_ms", "verdict"),
    [((3, 3), "together"), ((14, 3), "turns"), ((17, -15), "turns"), ((3, -1), "turns")],
    ids=["little", "much", "much beside a falling figure", "a falling figure"],
)
def test_no_figure_hides_what_another_container_measures(
    tmp_path: Path, figures_ms: tuple[int, int], verdict: str
) -> None:
    source, program = tmp_path / "judge.c", str(tmp_path / "judge")
    source.write_text(JUDGE)
    folder = os.path.join(ROOT, "libvcuda", "turns")
    command = ["gcc", "-std=gnu11", "-D_GNU_SOURCE", f"-I{folder}", f"-I{ROOT}/libvcuda"]
    command += ["-o", program, str(source), os.path.join(folder, "keeper", "together.c")]
    subprocess.run(command, check=True)
    words = [str(figure * 10**6 % 2**64) for figure in figures_ms]
    said = subprocess.run([program, *words], check=True, capture_output=True, text=True)
    assert said.stdout.strip() == verdict
