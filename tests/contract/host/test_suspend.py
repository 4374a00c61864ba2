"""`vcuda suspend` and `vcuda resume` with processes on the software GPU."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from support.samples import GIB
from support.suspended import MIB, Node, until
from vcuda_oci.ledger import events


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    made = Node(tmp_path)
    yield made
    made.end()


def test_a_container_leaves_the_gpu_and_comes_back_with_its_memory(node: Node) -> None:
    box = node.box("box", 2, 64 * MIB)
    assert box.all_work()
    before = node.used()
    assert before >= 128 * MIB
    off = node.vcuda("suspend", "box")
    assert (off.returncode, off.stderr) == (0, "")
    assert off.stdout.startswith("box is suspended: ")
    assert (node.step("box"), node.used()) == ("suspended", 0)
    again = node.vcuda("suspend", "bo")
    assert (again.returncode, again.stdout) == (0, "box is suspended already\n")
    on = node.vcuda("resume", "box")
    assert (on.returncode, on.stderr) == (0, "")
    assert on.stdout.startswith("box is running: ")
    assert (node.step("box"), node.used()) == (None, before)
    assert box.all_work()
    again = node.vcuda("resume", "box", "--json")
    assert json.loads(again.stdout) == [
        {"id": "box", "changed": False, "error": None, "bytes": {}, "seconds": 0.0, "lost": []}
    ]
    kinds = [event["kind"] for event in events.read(node.ledger.state_dir, "box")]
    assert kinds == ["suspended", "resumed"]
