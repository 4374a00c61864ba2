"""Suspend and resume: how fast, and under kills at random moments and calls of the driver."""

from __future__ import annotations

import random
import tempfile
from collections.abc import Callable
from pathlib import Path
from unittest import mock

from bench import suspend_rows
from bench.result import Figure
from support.suspend.suspend_kills import HARMS, Kills
from support.suspend.suspended import Node
from vcuda_hook.checkpoint import steps
from vcuda_hook.suspend import relocation

ROUNDS = 1000
_VERBS = ("suspend", "resume", "move", "resume there", "drain", "rebalance")
_SEED = 18
_LONGEST_SECONDS = 0.15  # as long as a program takes that nothing kills
_MOST_CALLS = 7  # two for each of three processes, one for one that its user has locked


def measure(say: Callable[[str], None]) -> list[Figure]:
    """The rows of suspend_rows, then kills."""
    return [*suspend_rows.measure(say), *kill_rounds(say)]


def kill_rounds(say: Callable[[str], None]) -> list[Figure]:
    """Rounds in which a program, its worker or a target is killed, or the driver refuses."""
    chosen = random.Random(_SEED)
    with tempfile.TemporaryDirectory() as folder:
        node = Node(Path(folder), "--memory", "8GiB", "--gpus", "2")
        kills = Kills(node, Path(folder), left=[steps.LOCKED])
        nodes = mock.patch.object(relocation, "change_nodes", kills.nodes.change)
        nodes.start()
        try:
            for number in range(ROUNDS):
                verb = chosen.choice(_VERBS)
                if verb.startswith("resume"):
                    kills.run("suspend", node.facts)
                if number % 2:
                    kills.with_harm(verb, chosen.randint(1, _MOST_CALLS), chosen.choice(HARMS))
                else:
                    kills.at_random(verb, chosen, _LONGEST_SECONDS)
                if (number + 1) % 100 == 0:
                    say(f"{number + 1} rounds, {kills.outcomes.killed} programs killed")
        finally:
            nodes.stop()
            kills.end()
    found = kills.outcomes
    for line in (*found.stuck, *found.lost):
        say(line)
    killed = f"{found.rounds} rounds, {found.killed} programs killed"
    note = f"{killed}, 3 processes and a locked one, software GPU"
    return [
        Figure("kills: stuck rounds", len(found.stuck), "rounds", 0, {}, note),
        Figure("kills: processes lost by vcuda", len(found.lost), "rounds", 0, {}, note),
    ]
