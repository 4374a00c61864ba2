"""What a look costs beside many containers, in steps and in writes: time would tell the machine."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.arbiter_node import World, elastic
from support.counted_steps import steps


def steps_of_a_look(folder: Path, containers: int, *waiting: str) -> int:
    """At so many on one GPU, of which some wait as they have before, and the others have rested."""
    world = World(folder)
    for number in range(containers):
        world.holds(str(number), elastic(6))
    # Long ago, so that the ledger is known not to have changed since.
    os.utime(world.ledger.allocations, ns=(1, 1))
    for _ in range(9):
        world.look(*waiting)
    for id in waiting:
        world.waits(id)
    taken = steps(world.node.look)
    world.node.close()
    return taken


def test_an_idle_container_beside_a_busy_one_adds_little_to_a_sample(
    tmp_path: Path,
) -> None:
    def of_eight_more(*waiting: str) -> int:
        few, many = (
            steps_of_a_look(tmp_path / f"{number}{waiting}", number, *waiting) for number in (8, 16)
        )
        return many - few

    assert of_eight_more("0") < 2 * of_eight_more()


def test_a_rate_that_changes_is_one_word_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    world = World(tmp_path)
    for id in "abc":
        world.holds(id, elastic(20))
    world.look("a", "b", "c")
    world.look("a", "b", "c")
    assert [world.rates(id) for id in "abc"] == [[33], [33], [33]]
    written = []
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *call: written.append(call) or original(*call))
    world.look("b", "c")
    world.look("b", "c")
    monkeypatch.undo()
    assert [world.rates(id) for id in "abc"] == [[20], [50], [50]]
    assert len(written) == 3
    world.node.close()
