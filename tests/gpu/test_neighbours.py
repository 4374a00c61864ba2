"""What two containers got is judged in the window in which both worked."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpu.machine import answer, compiled
from gpu.time import compute, neighbours
from gpu.time.neighbours import LOADS, PAIRS, Got
from shim.policy_node import PolicyNode
from support.softgpu.softgpu_host import SoftGpu


def test_window_leaves_out_the_beginning_and_ends_with_the_first_load() -> None:
    reports: list[Any] = [
        {"progress": [[10.0, 0, 0.0], [20.0, 9, 0.0]]},
        {"progress": [[9.0, 0, 0.0], [22.0, 9, 0.0]]},
    ]
    assert neighbours.window_of(reports) == (12, 20)


def test_a_kernel_that_ends_after_the_window_counts_in_part() -> None:
    # A kernel of 0.3 s a second; it slept for half of the first five seconds.
    said = {"progress": [[float(t), t, min(t, 5) / 2] for t in range(11)]}
    held = [(t / 10, 0.4 * (t // 10)) for t in range(110)]
    got = neighbours.got_of(said, held, (2.5, 7.5), 0.3)
    assert list(got) == [pytest.approx(part) for part in (0.3, 0.4, 0.25)]


def test_a_load_in_turns_that_works_as_it_does_alone_loses_nothing() -> None:
    # Alone it works 36 %, sleeps 54 %, and its calls take the rest.
    got = Got(0.9 * 0.36, 0.9, 0.9 * 0.54).of_whole(0.9), Got(0.1, 0.1, 0)
    assert neighbours.judged((90, 10), got)["lost"] == pytest.approx(0)


def test_figures_stay_as_they_are_after_the_last_change() -> None:
    samples = [(0.0, 1.0), (1.0, 2.0), (2.0, 2.0), (3.0, 2.0)]
    assert [neighbours.at(samples, moment) for moment in (-1, 0.5, 1, 9)] == [1, 1.5, 2, 2]


@pytest.mark.parametrize(
    ("asked", "got", "expected"),
    [
        ((30, 70), [Got(0.3, 0.3, 0), Got(0.7, 0.7, 0)], (0, 0, 0)),
        # Its gaps are its own, as far as it held the GPU in them.
        ((30, 70), [Got(0.2, 0.3, 0.4), Got(0.7, 0.7, 0)], (0, 0, 0)),
        ((30, 70), [Got(0.2, 0.3, 0.02), Got(0.68, 0.74, 0)], (4, 10, 0)),
        ((20, 40), [Got(0.25, 0.2, 0), Got(0.4, 0.4, 0)], (5, 0, 5)),
    ],
    ids=["exact", "gaps in turns", "lost in turns", "work outside of turns"],
)
def test_shares_are_turns_and_what_neither_used_is_lost(
    asked: tuple[int, int], got: list[Got], expected: tuple[float, float, float]
) -> None:
    found = neighbours.judged(asked, got)
    assert list(found) == ["off", "lost", "outside turns"]
    assert list(found.values()) == [pytest.approx(value) for value in expected]


@pytest.fixture(scope="module")
def tenant(tmp_path_factory: pytest.TempPathFactory) -> str:
    return compiled(compute.TENANT, str(tmp_path_factory.mktemp("tenant")))


@pytest.fixture
def node(tmp_path: Path) -> Iterator[PolicyNode]:
    gpu = SoftGpu(tmp_path, "--memory", "2GiB", "--bus-rate", "10GiB/s")
    made = PolicyNode(str(tmp_path / "node"), str(gpu.root))
    yield made
    made.close()


@pytest.mark.parametrize("pair", PAIRS, ids=" and ".join)
def test_what_the_loads_note_of_their_progress_is_their_share(
    node: PolicyNode, tenant: str, pair: tuple[str, str]
) -> None:
    """In virtual time. A step takes the software GPU a nanosecond."""
    shapes, cores = [LOADS[load] for load in pair], (30, 70)
    seconds = 3 * max(1.0, *(shape.kernel_ns / neighbours.LONG_NS for shape in shapes))
    guests = [node.container(core=str(core)) for core in cores]
    clock = node.clock(len(guests))
    started = [
        guest.start(
            *clock.command(
                tenant, shape.how, f"{shape.kernel_ns:.0f}", str(seconds), str(shape.blocks), "-"
            )
        )
        for guest, shape in zip(guests, shapes)
    ]
    reports = [answer(process) for process in started]
    window = neighbours.window_of(reports)
    for said, shape, core in zip(reports, shapes, cores):
        got = neighbours.got_of(said, [(0.0, 0.0)], window, shape.kernel_ns / 1e9)
        if shape.how == "gap":  # of which the kernel is 50 us, and a wait 70
            assert 0.6 * core / 100 < got.work < core / 100
        else:
            assert got.work == pytest.approx(core / 100, abs=0.03)
