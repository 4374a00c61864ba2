"""Whatever is killed while a container is suspended or resumed, the next program repairs it."""

from __future__ import annotations

import random
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.ledger.faults import CHANGES, killed_at
from support.suspend.suspend_kills import HARMS, Kills
from support.suspend.suspended import Node
from vcuda_hook.checkpoint import steps
from vcuda_hook.suspend import relocation

MOST = 100
# Without close: each process of the host is looked at, by a file of its own.
WRITES = tuple(call for call in CHANGES if call != "close")


@pytest.fixture
def kills(tmp_path: Path) -> Iterator[Kills]:
    node = Node(tmp_path)
    made = Kills(node, tmp_path, processes=2, left=[steps.LOCKED, steps.CHECKPOINTED])
    yield made
    made.end()


@pytest.fixture
def two_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kills]:
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "2")
    made = Kills(node, tmp_path, processes=2)
    monkeypatch.setattr(relocation, "change_nodes", made.nodes.change)
    yield made
    made.end()


def suspended(kills: Kills, verb: str) -> None:
    """Bring the container to where `verb` begins."""
    if verb.startswith("resume"):
        kills.run("suspend", kills.node.facts)


@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("verb", ["suspend", "resume"])
def test_harm_at_any_driver_call_leaves_no_process_locked(
    kills: Kills, verb: str, harm: str
) -> None:
    at = 1
    suspended(kills, verb)
    while kills.with_harm(verb, at, harm):
        at += 1
        suspended(kills, verb)
    # Two calls for each of two processes, one for a process that the first one killed; one for a
    # process that its user has locked.
    assert at > 3
    assert (kills.outcomes.stuck, kills.outcomes.lost) == ([], [])


def kill_at_each_write(kills: Kills, verb: str) -> None:
    for at in range(1, MOST):
        suspended(kills, verb)
        killed = killed_at(at, lambda: kills.run(verb, kills.node.facts), WRITES)
        kills.judge(f"{verb}, killed at write {at}")
        if not killed:
            break
    assert 10 < at < MOST - 1
    assert (kills.outcomes.stuck, kills.outcomes.lost) == ([], [])


@pytest.mark.parametrize("verb", ["suspend", "resume", "drain"])
def test_a_kill_at_any_write_leaves_a_whole_container(kills: Kills, verb: str) -> None:
    kill_at_each_write(kills, verb)


def test_kills_at_random_moments_lose_no_process_and_leave_none_locked(kills: Kills) -> None:
    chosen = random.Random(18)
    for number in range(30):
        verb = ("suspend", "resume")[number % 2]
        suspended(kills, verb)
        kills.at_random(verb, chosen, 0.15)
    assert kills.outcomes.rounds == 30
    assert kills.outcomes.killed > 0
    assert (kills.outcomes.stuck, kills.outcomes.lost) == ([], [])


@pytest.mark.parametrize("harm", HARMS)
def test_harm_at_any_driver_call_of_a_move_leaves_the_container_on_one_gpu(
    two_gpus: Kills, harm: str
) -> None:
    at = 1
    while two_gpus.with_harm("move", at, harm):
        at += 1
    assert at > 5
    assert (two_gpus.outcomes.stuck, two_gpus.outcomes.lost) == ([], [])


@pytest.mark.parametrize("verb", ["move", "resume there", "drain", "rebalance"])
def test_a_kill_at_any_write_of_a_move_leaves_the_ledger_right(two_gpus: Kills, verb: str) -> None:
    kill_at_each_write(two_gpus, verb)
