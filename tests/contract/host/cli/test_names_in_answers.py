"""Each verb takes every form of a container's name, and answers by the name, not by an id."""

from __future__ import annotations

from typing import Any

import pytest

from contract.host.cli.test_cli_ledger import Node, node_with
from support.ledger.samples import GIB, gpus, record
from vcuda_hook.cli import limit, suspend
from vcuda_hook.doctor import containers, moves
from vcuda_hook.why import kubectl
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import SUSPENDED, Suspension
from vcuda_oci.system import settings_file

ID, CONTAINER, NAME = "pod-u.main", "c0ffee" + "0" * 58, "ml/train-0/main"
POD = {"uid": "u", "namespace": "ml", "name": "train-0", "container": "main", "sandbox_id": "s"}
WORDS = [ID, "pod-u", CONTAINER, "c0ffee", NAME, "ml/train-0", "train-0/main", "train-0"]


@pytest.fixture
def node(tmp_path: Any, monkeypatch: Any) -> Node:
    found = node_with(tmp_path, monkeypatch)
    facts = Host("", "600.1", "/usr/lib", gpus(16, 8))
    monkeypatch.setattr(suspend, "opened", lambda *_: (facts, found.ledger))
    monkeypatch.setattr(limit.apply_share, "host_of", lambda _: facts)  # type: ignore[attr-defined]
    monkeypatch.setattr(kubectl.shutil, "which", lambda _: None)  # type: ignore[attr-defined]
    return found


def add(node: Node, status: str = "running", **more: Any) -> None:
    shares = [GpuShare("GPU-0", 4 * GIB, 30)]
    made = record(ID, container_id=CONTAINER, pod=POD, shares=shares, **more)
    node.ledger.record_event(events.CLAIMED, node.add_record(made, status), "30 %")


def answer(node: Node, capsys: Any, *words: str) -> str:
    node.vcuda(*words)
    printed = capsys.readouterr()
    return str(printed.out + printed.err)


@pytest.mark.parametrize("word", WORDS)
@pytest.mark.parametrize(
    ("verb", "options"),
    [
        ("limit", ("--core", "40", "--dry-run")),
        ("limit", ("--memory", "100GiB")),
        ("why", ()),
        ("events", ()),
        ("release", ()),
        ("resume", ()),
        ("suspend", ()),
        ("move", ("--gpu", "1")),
    ],
)
def test_every_form_of_a_name_is_taken_and_the_name_is_answered(
    node: Node, capsys: Any, verb: str, options: tuple[str, ...], word: str
) -> None:
    add(node)
    found = answer(node, capsys, verb, word, *options)
    assert NAME in found, found
    assert ID not in found and CONTAINER[:12] not in found, found


@pytest.mark.parametrize("verb", ["suspend", "why"])
@pytest.mark.parametrize("word", ["ml/train-0/mai", "ml/trian-0/main"])
def test_mistyped_name_is_answered_by_the_one_like_it(
    node: Node, capsys: Any, verb: str, word: str
) -> None:
    add(node)
    assert f"did you mean {NAME}? See 'vcuda ps'" in answer(node, capsys, verb, word)


@pytest.mark.parametrize("words", [("release", "train-0"), ("release", "--all-dead")])
def test_released_container_is_named(node: Node, capsys: Any, words: tuple[str, ...]) -> None:
    add(node, "stopped" if words[1] == "train-0" else "")
    if words[1] == "train-0":
        words = (*words, "--force")
    assert answer(node, capsys, *words).startswith(f"released {NAME}\n")


def test_hint_of_a_suspended_container_names_it(node: Node, capsys: Any) -> None:
    add(node, suspension=Suspension(SUSPENDED, "order", 1, {}))
    assert answer(node, capsys, "release", "train-0", "--force") == (
        f"vcuda: {NAME}: is suspended; run 'vcuda resume {NAME}', or stop its container\n"
    )


def test_doctor_names_containers(node: Node) -> None:
    add(node, "", nodes_left=["/dev/nvidia1"])
    settings = settings_file.load(node.config)
    found = [*containers.examine(settings), *moves.examine(settings)]
    shown = {each.where for each in found if each.name in (containers.DEAD, moves.NODES_LEFT)}
    assert shown == {NAME}
