"""Compute policies end to end: what containers get of the software GPU while an arbiter grants. In
virtual time, but for the witnesses that it is so on a machine as well: those run alone."""

from __future__ import annotations

import signal
import time
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from shim.conftest import DriverRoot
from shim.policy_node import PolicyNode, limits_of, share_of
from support.gpu.guest import PYTHON, Guest
from support.softgpu.softgpu_host import PRELUDE
from support.softgpu.virtual_time import answer
from support.waiting import until

SECONDS = 30
POINTS = 0.02
REAL_POINTS = 0.06  # of work in real time: a thread that wakes late loses from its turn
LOST = 0.03
LOST_BY_MANY = 0.05  # of three and more: their turns are more, or shorter
SHAPES: dict[str, dict[str, Any]] = {
    "async 50 us": {"kernel_us": 50, "ahead": 64},
    "async 1 ms": {"kernel_us": 1000, "ahead": 16},
    "sync 5 ms": {"kernel_us": 5000, "ahead": 0},
    "sync 50 ms": {"kernel_us": 50_000, "ahead": 0},
}


@pytest.fixture
def node(host: DriverRoot, tmp_path: Any) -> Iterator[PolicyNode]:
    node = PolicyNode(str(tmp_path / "node"), host.path)
    yield node
    node.close()


def fixed(core: int) -> dict[str, str]:
    return {"core": str(core)}


def elastic(core: int, **words: str) -> dict[str, str]:
    return {"core": str(core), "policy": "elastic", **words}


def least_and_most(core: int, core_limit: int) -> dict[str, str]:
    """KubeShare's gpu_request and gpu_limit."""
    return {"core": str(core), "core_limit": str(core_limit)}


def weighted(core: int, weight: int) -> dict[str, str]:
    return {"core": str(core), "policy": "weighted", "weight": str(weight)}


def best_effort(core: int) -> dict[str, str]:
    return {"core": str(core), "policy": "best-effort"}


def check(shares: Sequence[float], expected: Sequence[float], error: float = POINTS) -> None:
    """Each share, in percent, is the policy's, and almost no GPU time is lost."""
    assert list(shares) == [pytest.approx(percent / 100, abs=error) for percent in expected]
    lost = LOST if len(expected) < 3 else LOST_BY_MANY
    assert sum(shares) >= min(1, sum(expected) / 100) - lost


@pytest.mark.parametrize(
    ("words", "expected"),
    [
        ([elastic(30)], [100]),
        ([least_and_most(30, 60)], [60]),
        ([fixed(30), elastic(30)], [30, 70]),
        ([least_and_most(30, 60), fixed(70)], [30, 70]),
        ([least_and_most(30, 60), elastic(20)], [60, 40]),
        ([elastic(10), elastic(30)], [25, 75]),
        ([weighted(20, 100), weighted(20, 300)], [35, 65]),
        ([elastic(20, priority="1"), elastic(20)], [80, 20]),
        ([fixed(40), best_effort(10)], [40, 60]),
        ([fixed(30), elastic(20), best_effort(10)], [30, 69, 1]),
        ([elastic(10)] * 8, [12.5] * 8),
    ],
    ids=[
        "alone",
        "alone below a ceiling",
        "fixed and elastic",
        "nothing spare",
        "up to a ceiling beside elastic",
        "elastic by core",
        "weighted",
        "priority",
        "best-effort beside fixed",
        "best-effort beside elastic",
        "eight elastic",
    ],
)
def test_busy_containers_get_what_their_policies_say(
    node: PolicyNode, words: list[dict[str, str]], expected: list[float]
) -> None:
    guests = [node.container(**said) for said in words]
    shares = node.granted_shares(guests, SECONDS, **SHAPES["async 1 ms"])
    check(shares, expected)


@pytest.mark.parametrize("shape", ["async 50 us", "sync 5 ms", "sync 50 ms"])
def test_whatever_the_kernels_are_elastic_ones_share_by_core(node: PolicyNode, shape: str) -> None:
    guests = [node.container(**elastic(core)) for core in (10, 30)]
    shares = node.granted_shares(guests, SECONDS, **SHAPES[shape])
    # A window may hold one kernel more or less.
    check(shares, [25, 75], POINTS + SHAPES[shape]["kernel_us"] / 1e6 / SECONDS)


def test_a_container_of_every_policy_and_eight_in_all_get_what_is_theirs(node: PolicyNode) -> None:
    words = [
        fixed(20),
        fixed(10),
        elastic(20),
        elastic(10, core_limit="10"),
        weighted(10, 20),
        weighted(10, 40),
        best_effort(5),
        best_effort(5),
    ]
    guests = [node.container(**said) for said in words]
    shares = node.granted_shares(guests, SECONDS, **SHAPES["async 1 ms"])
    # 18 remain beyond the guarantees and the floors, for weights of 20, 20 and 40.
    check(shares, [20, 10, 24.5, 10, 14.5, 19, 1, 1])


def test_without_an_arbiter_each_has_what_is_reserved(node: PolicyNode) -> None:
    words = [fixed(20), elastic(30), weighted(20, 500), best_effort(10)]
    guests = [node.container(**said) for said in words]
    assert node.shares_on(node.clock(len(guests)), guests, 10) == [
        pytest.approx(percent / 100, abs=POINTS) for percent in (20, 30, 20, 10)
    ]


# Computes elsewhere four fifths of the time.
BURSTS = """
start()
function = kernel(b"spin")
while True:
    spin(function, 4_000_000)
    ok(cuda.cuCtxSynchronize())
    time.sleep(0.016)
"""


# When the neighbour is at work: what it uses; and, from a second after `go`, what both do.
MEASURE = """
import json, sys, time
from vcuda_oci.pages import page_reader
neighbour, guest, go = sys.argv[1:]
def used(page):
    with open(page, "rb") as usage:
        return page_reader.read_usage(usage.read()).gpus[0]
while used(neighbour).launches <= 20:
    time.sleep(0.01)
def shares(seconds, *pages):
    began, before = time.monotonic_ns(), [used(page).busy_ns for page in pages]
    time.sleep(seconds)
    elapsed = time.monotonic_ns() - began
    return [(used(page).busy_ns - then) / elapsed for page, then in zip(pages, before)]
alone = shares(1, neighbour)
open(go, "w").close()
time.sleep(1)
print(json.dumps(alone + shares(4, neighbour, guest)))
"""


def test_time_that_a_content_neighbour_leaves_is_lent(node: PolicyNode, tmp_path: Path) -> None:
    neighbour, guest = node.container(**fixed(70)), node.container(**elastic(30))
    clock, go = node.clock(4), str(tmp_path / "go")
    with node.arbiter(clock):
        bursts = neighbour.start(*clock.command(PYTHON, "-c", PRELUDE + BURSTS))
        process = node.busy(guest, 6, go=go, clock=clock)
        measured = node.program(MEASURE, neighbour.usage, guest.usage, go, clock=clock)
        alone, used, share = answer(measured)
        share_of(process)
        bursts.kill()
        bursts.communicate()
    # Its kernels alternate with the other's now, so fewer of them run.
    assert 0.1 < used <= alone < 0.22
    # The neighbour may be tried for a tenth of a second; its free time is not granted then.
    assert share + used >= 1 - LOST - 0.1 / 4


# What a container's usage page tells of its demand: when it was read, nanoseconds of work and of
# waiting, until when a long kernel takes.
SHOWN = """
import json, sys, time
from vcuda_oci.pages import layout
from vcuda_plugin.agent.compute.demand import DEMAND_FROM, reading
def shown():
    with open(sys.argv[1], "rb") as usage:
        usage.seek(layout.USAGE_HEAD_SIZE + DEMAND_FROM)
        return reading(usage.read(), 0, time.monotonic_ns())
"""
# Half a second of one that has begun to wait.
WAITS = """
while shown()[2] == 0:
    time.sleep(0.01)
before, _, after = shown(), time.sleep(0.5), shown()
print(json.dumps((after[2] - before[2]) / (after[0] - before[0])))
"""
# How long it will take at most, over four seconds.
LONG = """
end, ahead = time.monotonic() + 4, []
while time.monotonic() < end:
    now = shown()
    ahead.append((now[3] - now[0]) / 1e9)
    time.sleep(0.01)
print(json.dumps(max(ahead)))
"""


def test_a_program_that_waits_for_its_share_shows_it_while_it_waits(node: PolicyNode) -> None:
    guest, clock = node.container(**fixed(1)), node.clock(2)
    # Of 1 % a kernel of 50 ms is five seconds to pay for.
    process = node.busy(guest, 30, **SHAPES["sync 50 ms"], clock=clock)
    waited = answer(node.program(SHOWN + WAITS, guest.usage, clock=clock))
    process.kill()
    process.communicate()
    assert waited == pytest.approx(1, abs=0.1)


def test_a_kernel_of_half_a_second_shows_until_when_it_takes(node: PolicyNode) -> None:
    guest, clock = node.container(**elastic(99)), node.clock(2)
    process = node.busy(guest, 4, kernel_us=500_000, ahead=0, clock=clock)
    ahead = answer(node.program(SHOWN + LONG, guest.usage, clock=clock))
    share_of(process)
    assert ahead == pytest.approx(0.5, abs=0.05)


def busy_share(guest: Guest, seconds: float) -> float:
    """What the container used of the GPU's time from now on."""
    before, began = guest.read_usage().gpus[0].busy_ns, time.monotonic_ns()
    time.sleep(seconds)
    after, ended = guest.read_usage().gpus[0].busy_ns, time.monotonic_ns()
    return (after - before) / (ended - began)


@pytest.fixture
def pair(node: PolicyNode) -> Iterator[tuple[Guest, Guest]]:
    """An elastic container that is busy all the time, and one that sleeps; each has 50."""
    busy, sleeper = node.container(**elastic(50)), node.container(**elastic(50))
    process = node.busy(busy, 30)
    yield busy, sleeper
    process.kill()
    process.communicate(timeout=30)


@pytest.mark.timed
def test_elastic_neighbour_returns_borrowed_time_to_a_waking_container(
    node: PolicyNode, pair: tuple[Guest, Guest]
) -> None:
    busy, sleeper = pair
    with node.arbiter():
        until(lambda: busy_share(busy, 0.5) > 0.97, seconds=5)
        woken = node.busy(sleeper, 3)
        # From its first kernel on, the driver's start included.
        until(lambda: sleeper.read_usage().gpus[0].launches > 0, seconds=10)
        until(lambda: limits_of(busy).gpus[0].rate_ppm <= 500_000, seconds=0.5)
        assert share_of(woken) == pytest.approx(0.5, abs=REAL_POINTS)
        # And is lent again what the other, which has ended, leaves.
        until(lambda: busy_share(busy, 0.5) > 0.97, seconds=5)


@pytest.mark.timed
def test_when_the_arbiter_is_killed_what_is_reserved_holds_again(
    node: PolicyNode, pair: tuple[Guest, Guest]
) -> None:
    busy, _ = pair
    with node.arbiter() as arbiter:
        until(lambda: busy_share(busy, 0.5) > 0.97, seconds=5)
        arbiter.send_signal(signal.SIGKILL)
        arbiter.wait(10)
        time.sleep(1.5)  # the lease is one second
        assert limits_of(busy).gpus[0].rate_ppm == 1_000_000
        assert busy_share(busy, 1.5) == pytest.approx(0.5, abs=POINTS)
    # The next one grants again.
    with node.arbiter():
        until(lambda: busy_share(busy, 0.5) > 0.97, seconds=5)
    assert busy_share(busy, 1.5) == pytest.approx(0.5, abs=POINTS)


LIAR = """
import os, sys, time
end = time.monotonic() + 30
with open(sys.argv[1], "r+b", buffering=0) as usage:
    while time.monotonic() < end:
        os.pwrite(usage.fileno(), os.urandom(4096), 0)
        time.sleep(0.01)
"""


def test_a_container_that_scribbles_on_its_usage_page_takes_nothing_from_another(
    node: PolicyNode,
) -> None:
    """It may claim demand, and gets no more than a container with real demand."""
    honest, liar = node.container(**elastic(60)), node.container(**elastic(20))
    clock = node.clock(3)
    with node.arbiter(clock), node.program(LIAR, liar.usage, clock=clock) as lies:
        (share,) = node.shares_on(clock, [honest], SECONDS)
        lies.kill()
    # The forging container may get a quarter of the 20 unreserved percent.
    assert share > 0.75 - POINTS
