"""Odd runs of a short kernel: few of its launches are measured all the same, in virtual time.

A measured launch takes the thread two records more, so the number of launches shows it.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable

import pytest

from shim.conftest import Clients
from support.gpu.guest import GIB, Guest
from support.shares import loads
from support.shares.judge import MODELS, Tenant, judge

pytestmark = pytest.mark.usefixtures("built")
LAUNCH_S = 4.3e-6  # with the record that the load itself makes
FIRST_US = 20_000


@pytest.mark.parametrize("core", [10, 50])
def test_a_kernel_is_not_charged_for_the_time_that_its_launch_takes(core: int) -> None:
    outcome = judge([], [Tenant(core, loads.LAUNCH_BOUND)], window_s=3)
    assert 100 * outcome.tenants[0].work == pytest.approx(core, abs=2)


def kernels(first_us: int) -> int:
    load = dataclasses.replace(loads.LAUNCH_BOUND, first_us=first_us)
    outcome = judge([], [Tenant(100, load)], warming_s=0.05, window_s=0.1)
    return int(outcome.tenants[0].report["kernels"])


def test_a_slow_first_launch_does_not_make_its_function_erratic() -> None:
    assert kernels(FIRST_US) >= 0.97 * (kernels(0) - FIRST_US / 1e6 / LAUNCH_S)


def test_switches_at_the_beginning_of_turns_make_no_function_erratic() -> None:
    tenants = [Tenant(50, loads.LAUNCH_BOUND)] * 2
    outcome = judge(MODELS["switch 500 us"], tenants, window_s=2)
    launched = sum(got.report["kernels"] for got in outcome.tenants)
    # The GPU works for 63 % of its time, because the launches take longer than the kernels.
    assert launched * 3e-6 >= 0.6 * outcome.tenants[0].report["wall_seconds"]


@pytest.mark.parametrize(
    ("cause", "least", "most"), [("none", 1, 40), ("host", 1, 60), ("gpu", 2000, 8000)]
)
def test_a_thread_kept_off_its_cpu_makes_no_function_erratic(
    new_mock_guest: Callable[..., Guest], client: Clients, cause: str, least: int, most: int
) -> None:
    assert least <= int(new_mock_guest(GIB).run(client("accident"), cause)) <= most
