"""`vcuda events`: names in it, which containers' users choose."""

from __future__ import annotations

import json
from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import Node, node_with
from support.files import write
from vcuda_oci.ledger import events


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    return node_with(tmp_path, monkeypatch)


def claimed(node: Node, folder: str, id: str, name: str) -> None:
    """An event of a container that Docker knows by this name."""
    path = write(f"{folder}/{id}/config.v2.json", json.dumps({"ID": id, "Name": f"/{name}"}))
    more = events.about(id, {}, {"file": path})
    events.record(node.ledger.state_dir, "p", events.CLAIMED, id, f"of {id[0]}", **more)


def shown(node: Node, capsys: Any, *words: str) -> list[str]:
    assert node.vcuda("events", *words) == 0
    return [line.split()[3] for line in capsys.readouterr().out.splitlines()[1:]]


def test_a_name_of_one_container_is_shown(node: Node, tmp_path: Any, capsys: Any) -> None:
    claimed(node, str(tmp_path), "a" * 64, "web")
    assert shown(node, capsys) == ["web"]


@pytest.mark.parametrize("other", ["web", "the other's id"])
def test_a_name_of_two_containers_selects_both_and_shows_ids(
    node: Node, tmp_path: Any, capsys: Any, other: str
) -> None:
    claimed(node, str(tmp_path), "a" * 64, "web")
    claimed(node, str(tmp_path), "b" * 64, "web" if other == "web" else "a" * 64)
    both = ["a" * 12, "b" * 12]
    if other == "web":
        assert shown(node, capsys) == shown(node, capsys, "web") == both
    else:
        assert shown(node, capsys) == ["web", "b" * 12]
        assert shown(node, capsys, "a" * 64) == ["web"]
