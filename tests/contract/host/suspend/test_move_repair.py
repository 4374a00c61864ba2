"""A move that was killed is completed by the node agent, which may not enter containers."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.suspend.suspend_kills import Kills
from support.suspend.suspended import Node
from vcuda_hook.checkpoint.worker import Worker
from vcuda_hook.suspend import control, relocation, repairs
from vcuda_hook.suspend.places import library_of
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.ledger.liveness import start_time
from vcuda_oci.ledger.unhealthy import Drain
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import RESUMING
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.bypass.held_containers import Held


@pytest.fixture
def killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Kills]:
    """A container that was on its way to GPU 1; none of its processes is there yet."""
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "2")
    found = Kills(node, tmp_path, processes=2)
    monkeypatch.setattr(relocation, "change_nodes", found.nodes.change)
    found.nodes.may_enter = False
    found.run("suspend", node.facts)
    (old, new), mine = (gpu.uuid for gpu in node.facts.gpus), node.record("box")
    assert mine.suspension
    on_its_way = mine.suspension.replaced(step=RESUMING, moves={old: new})
    with node.ledger:
        node.ledger.record(mine.replaced(suspension=on_its_way))
    yield found
    found.end()


def test_container_that_has_not_arrived_stays_suspended_on_its_own_gpu(killed: Kills) -> None:
    node = killed.node
    assert repairs.repair(node.ledger, node.facts, "box")
    assert (node.step("box"), killed.places()) == ("suspended", {2})
    assert [share.uuid for share in node.record("box").shares] == [node.facts.gpus[0].uuid]
    control.resume(node.ledger, node.facts, "box", Rules(), 5)
    killed.judge("resume")
    assert (killed.outcomes.stuck, killed.outcomes.lost) == ([], [])


def test_container_of_which_one_process_has_arrived_follows_it(killed: Kills) -> None:
    node = killed.node
    first = killed.box.processes[0].pid
    pairs = [[gpu.uuid for gpu in node.facts.gpus]]
    with open(os.devnull) as none, Worker(library_of(node.facts), none.fileno()) as worker:
        started = {first: start_time(first)}
        worker.call("restore", started, [first], time.monotonic() + 10, pairs=pairs)
    assert killed.places() == {1, 2}
    assert repairs.repair(node.ledger, node.facts, "box")
    assert (node.step("box"), killed.places()) == (None, {0})
    assert [share.uuid for share in node.record("box").shares] == [node.facts.gpus[1].uuid]
    assert node.record("box").nodes_left == [node.facts.gpus[0].uuid]
    killed.judge("repair")
    assert node.record("box").nodes_left == []
    assert (killed.outcomes.stuck, killed.outcomes.lost) == ([], [])
    assert killed.nodes.open() == {node.facts.gpus[1].uuid}
    told = Path(f"{node.ledger.state_dir}/events.jsonl").read_text()
    assert "it may still open" in told


def test_container_on_its_way_is_at_home_on_both_gpus(killed: Kills) -> None:
    """Otherwise the watch from outside would report it, or stop it, amid a long copy."""
    node = killed.node
    held = Held(node.record("box"), f"{node.ledger.containers}/box")
    assert sorted(held.holder().shares) == sorted(gpu.uuid for gpu in node.facts.gpus)


def test_move_to_a_gpu_that_is_drained_meanwhile_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Node(tmp_path, "--memory", "8GiB", "--gpus", "2")
    kills = Kills(node, tmp_path, processes=1)
    look, other = relocation.closed, node.facts.gpus[1].uuid

    def drained_after(ledger: Ledger) -> dict[str, str]:
        found = look(ledger)
        unhealthy.write_drained(ledger.state_dir, {other: Drain(time.time(), ended=True)})
        return found

    monkeypatch.setattr(relocation, "change_nodes", kills.nodes.change)
    monkeypatch.setattr(relocation, "closed", drained_after)
    with pytest.raises(VcudaError, match=f"{other} is drained"):
        kills.run("move", node.facts)
    assert (node.step("box"), kills.places()) == (None, {0})
    assert [share.uuid for share in node.record("box").resident] == [node.facts.gpus[0].uuid]
    kills.end()
