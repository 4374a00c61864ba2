"""The cost of a poll beside many containers, in executed lines and writes."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from support.agent.arbiter_node import MS, ArbiterNode, elastic
from support.wrapper.counted_steps import steps
from vcuda_plugin.agent.compute.demand import WAIT_NS


def steps_of_a_sample(folder: Path, containers: int, *waiting: str) -> int:
    """At so many on one GPU, of which some wait as they have before, and the others have rested."""
    arbiter_node = ArbiterNode(folder)
    for number in range(containers):
        arbiter_node.add_record(str(number), elastic(6))
    # Long ago, so that the ledger is known not to have changed since.
    os.utime(arbiter_node.ledger.allocations, ns=(1, 1))
    for _ in range(9):
        arbiter_node.poll(*waiting)
    for id in waiting:
        arbiter_node.waits(id)
    taken = steps(arbiter_node.node.sample)
    arbiter_node.node.close()
    return taken


def test_an_idle_container_beside_a_busy_one_adds_little_to_a_sample(
    tmp_path: Path,
) -> None:
    def of_eight_more(*waiting: str) -> int:
        few, many = (
            steps_of_a_sample(tmp_path / f"{number}{waiting}", number, *waiting)
            for number in (8, 16)
        )
        return many - few

    assert of_eight_more("0") < 2 * of_eight_more()


def test_rate_change_is_one_word_written_to_the_page(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    arbiter_node = ArbiterNode(tmp_path)
    for id in "abc":
        arbiter_node.add_record(id, elastic(20))
    arbiter_node.poll("a", "b", "c")
    arbiter_node.poll("a", "b", "c")
    assert [arbiter_node.rates(id) for id in "abc"] == [[33], [33], [33]]
    written = []
    original = os.pwrite
    monkeypatch.setattr(os, "pwrite", lambda *call: written.append(call) or original(*call))
    for _ in range(WAIT_NS // (50 * MS) + 1):  # until then "a" may wait on
        arbiter_node.poll("b", "c")
    monkeypatch.undo()
    assert [arbiter_node.rates(id) for id in "abc"] == [[20], [50], [50]]
    assert len(written) == 3
    arbiter_node.node.close()
