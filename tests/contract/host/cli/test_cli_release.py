"""`vcuda release` on a ledger with every kind of tenant."""

from __future__ import annotations

import json
import os
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import Node, node_with
from support.ledger.samples import record
from vcuda_oci.model.suspension import SUSPENDED, Suspension


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    return node_with(tmp_path, monkeypatch)


def test_release_refuses_a_living_container(node: Node, capsys: Any) -> None:
    node.add_record(record("alive"))
    node.add_record(record("dead"), "stopped")
    assert node.vcuda("release", "dead", "alive") == 1
    assert "vcuda: alive: its container lives; stop it first" in capsys.readouterr().err
    assert ids(node) == ["alive", "dead"], "part of the command was done"
    assert node.vcuda("release", "--force", "alive", "--json") == 0
    assert json.loads(capsys.readouterr().out) == ["alive"]
    assert ids(node) == ["dead"]


def test_release_keeps_a_suspended_container_until_it_has_ended(node: Node, capsys: Any) -> None:
    off = Suspension(SUSPENDED, "order", 1, {})
    node.add_record(record("alive", suspension=off))
    node.add_record(record("dead", suspension=off), "stopped")
    assert node.vcuda("release", "--force", "alive") == 1
    assert capsys.readouterr().err == (
        "vcuda: alive: is suspended; run 'vcuda resume alive', or stop its container\n"
    )
    assert node.vcuda("release", "dead") == 0
    assert ids(node) == ["alive"]


def test_release_all_dead_sweeps_and_lists_the_released(node: Node, capsys: Any) -> None:
    node.add_record(record("alive"))
    node.add_record(record("dead"), "stopped")
    node.add_record(record("gone"), "")
    assert node.vcuda("release", "--all-dead") == 0
    assert capsys.readouterr().out == "released dead\nreleased gone\n"
    assert ids(node) == ["alive"]
    assert node.vcuda("release", "--all-dead") == 0
    assert capsys.readouterr().out == "nothing to release: every container lives\n"


def test_release_takes_a_broken_record_by_its_id_only(node: Node, capsys: Any) -> None:
    node.breaks("half")
    assert node.vcuda("release", "hal") == 1
    assert node.vcuda("release", "../allocations/half") == 1
    assert node.ledger.read()[1][0][0].endswith("/half.json")
    assert node.vcuda("release", "half") == 0
    assert os.listdir(node.ledger.allocations) == []


def test_release_of_nothing_asks_for_an_id(node: Node, capsys: Any) -> None:
    assert node.vcuda("release") == 1
    assert capsys.readouterr().err == (
        "vcuda: vcuda release: nothing to release; name an id, or use --all-dead\n"
    )


def ids(node: Node) -> list[str]:
    return [allocation.id for allocation in node.ledger.read()[0]]
