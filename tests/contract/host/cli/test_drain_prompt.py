"""Verbs on a terminal: `drain` and `rebalance` ask, and only a yes begins; copies show progress."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from support.host.terminal import Terminal
from support.ledger.samples import GIB
from support.suspend.suspended import MIB, Node
from vcuda_oci.ledger import unhealthy

END_OF_INPUT, INTERRUPT = "\x04", "\x03"
NO = ("n\n", "\n", "yeah\n", END_OF_INPUT, INTERRUPT)


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "2")
    yield node
    node.end()


def reads(pid: int) -> bool:
    """Whether it sleeps, as in a read; a signal before that would be noticed after the read."""
    with open(f"/proc/{pid}/stat") as file:
        return file.read().rpartition(") ")[2][0] == "S"


def asked(node: Node, question: str, keys: str, *words: str) -> tuple[int, str]:
    """The exit status and the output of a command that asks and gets these keys."""
    terminal = Terminal(node.command(*words), width=100)
    try:
        terminal.until(lambda lines: any(f"{question} [y/N]" in line for line in lines))
        terminal.until(lambda _: reads(terminal.pid))
        terminal.press(keys)
        return terminal.end(), terminal.output.decode()
    finally:
        terminal.close()


def test_drain_begins_after_a_yes_only(node: Node) -> None:
    gpu = node.facts.gpus[0]

    def drained(keys: str) -> bool:
        status, printed = asked(node, "Drain GPU 0?", keys, "drain", "0")
        assert status == 0, printed
        assert f"GPU 0, {gpu.uuid}: 0 containers" in printed
        is_drained = gpu.uuid in unhealthy.read_drained(node.ledger.state_dir)
        assert ("GPU 0 is drained" in printed) == is_drained
        return is_drained

    assert [drained(keys) for keys in NO] == [False] * len(NO)
    assert drained(" Y \n")
    without_terminal = node.vcuda("drain", "1")
    hint = "add --yes to do it, or --dry-run to see the plan"
    assert (without_terminal.returncode, without_terminal.stderr) == (
        1,
        f"vcuda: vcuda drain: nothing is changed; {hint}\n",
    )
    assert [*unhealthy.read_drained(node.ledger.state_dir)] == [gpu.uuid]


def test_rebalance_moves_nothing_without_a_yes(node: Node) -> None:
    node.box("box", 1, 8 * MIB, memory=GIB)
    node.box("other", 1, 8 * MIB, memory=GIB, gpu=1)
    before = node.ledger.read()
    for keys in NO[:2]:
        words = ("rebalance", "--core", "60", "--memory", "1GiB")
        status, printed = asked(node, "Move them?", keys, *words)
        assert (status, "move" in printed) == (0, True)
        assert node.ledger.read() == before


def test_copies_show_their_progress_on_a_terminal(tmp_path: Path) -> None:
    rates = ("--checkpoint-rate", "16MiB/s", "--restore-rate", "16MiB/s")
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "1", *rates)
    try:
        node.box("box", 1, 16 * MIB)
        for verb, shown in (("suspend", "copying off the GPU"), ("resume", "copying back to the")):
            terminal = Terminal(node.command(verb, "box"), width=100)
            assert terminal.end() == 0
            assert f"box: {shown}" in terminal.output.decode()
            terminal.close()
    finally:
        node.end()
