"""Drained GPUs: what claims, plans and `vcuda doctor` make of them."""

from __future__ import annotations

import time
from typing import Any

import pytest

from support.ledger.claims import Claims
from support.ledger.samples import GIB, host, record
from support.ledger.tenants import Tenants
from vcuda_hook.doctor import moves
from vcuda_hook.drain import drain, drain_plan
from vcuda_hook.drain.drain_plan import ASLEEP, MOVE, STAY, SUSPEND
from vcuda_hook.drain.survey import Found, Survey
from vcuda_hook.suspend import places
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.unhealthy import Drain, GpuFault
from vcuda_oci.model import allocation
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.model.suspension import SUSPENDED, Suspension
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file


def close(state_dir: str, *uuids: str, ended: bool = True) -> None:
    unhealthy.write_drained(state_dir, {uuid: Drain(time.time(), ended=ended) for uuid in uuids})


def test_new_and_restarted_containers_go_to_other_gpus(tmp_path: Any) -> None:
    claims, node = Claims(tmp_path), host(16, 16)
    state, share = claims.ledger.state_dir, Request.of(50, GIB)
    here, there = ([GpuShare(uuid, GIB, 50)] for uuid in ("GPU-0", "GPU-1"))
    assert claims.claim("early", share, node) == (here, True)
    close(state, "GPU-0")
    assert claims.claim("late", share, node) == (there, True)
    assert claims.claim("early", share, node) == (there, True)
    assert claims.refusal("named", Request.of(10, GIB, gpus=("0",)), node) == (
        "placement: GPU-0 is drained; name another GPU, ask for less, or run 'vcuda undrain'"
    )
    unhealthy.write(state, {"GPU-0": GpuFault("", 79, None)})
    assert unhealthy.reasons(state) == {"GPU-0": "Xid 79, drained"}
    close(state)
    assert unhealthy.reasons(state) == {"GPU-0": "Xid 79"}


@pytest.mark.parametrize("text", ["", "[]", '{"GPU-0": {"since": 1e999, "ended": true}}'])
def test_record_of_drains_that_cannot_be_read_is_reported(tmp_path: Any, text: str) -> None:
    settings = settings_file.parse(f'state-dir = "{tmp_path}"', "config.toml")
    (tmp_path / "drained.json").write_text(text)
    (found,) = [one for one in moves.examine(settings) if one.name == moves.DRAINED]
    assert (found.severity, found.where) == ("warning", f"{tmp_path}/drained.json")


def found(id: str, held: int, *to: str, memory: int = 4, **changes: Any) -> Found:
    shares = [GpuShare("GPU-0", memory * GIB, 20)]
    return Found(record(id, shares=shares, **changes), held * GIB, to, None, None)


def test_plan_moves_what_finds_room_and_suspends_what_the_host_holds() -> None:
    whole = GpuShare("GPU-1", 12 * GIB, 20)
    off = Suspension(SUSPENDED, "order", 1.0, {"GPU-0": GIB})
    seen = Survey(
        [
            found("moves", 2, "GPU-1"),
            found("sleeps", 1, "GPU-1"),
            found("full", 3, "GPU-1", memory=5),
            found("pod", 1, pod={"namespace": "ml", "name": "p"}),
            found("managed", 1)._replace(unsuspended=("is managed", "")),
        ],
        [record("off", shares=[GpuShare("GPU-0", GIB, 10)], suspension=off)],
        [whole],
    )
    steps = drain_plan.plan(host(16, 16), "GPU-0", seen, Rules(), 2 * GIB, {})
    assert [(step.id, step.action, step.target) for step in steps] == [
        ("moves", MOVE, "GPU-1"),
        ("sleeps", SUSPEND, ""),
        ("off", ASLEEP, ""),
        ("full", STAY, ""),
        ("pod", STAY, ""),
        ("managed", STAY, ""),
    ]
    why = {step.id: step.reason for step in steps}
    assert why["full"] == "the host's memory has no room for what it holds"
    assert why["pod"] == "no other GPU has room for its share"
    failed = {("moves", MOVE): ("the driver refuses it", "")}
    steps = drain_plan.plan(host(16, 16), "GPU-0", seen, Rules(), 9 * GIB, failed)
    (again,) = (one for one in steps if one.id == "moves")
    assert (again.action, again.reason) == (SUSPEND, "the driver refuses it")


@pytest.mark.parametrize("ended", [True, False])
def test_doctor_names_drains_and_nodes_that_a_killed_move_has_left(
    tmp_path: Any, *, ended: bool
) -> None:
    node = Tenants(str(tmp_path))
    settings = settings_file.parse(f'state-dir = "{node.state_dir}"', "config.toml")
    node.add_record("whole")
    assert [one.severity for one in moves.examine(settings)] == ["ok", "ok"]
    left = node.add_record("left", nodes_left=["GPU-1"])
    assert allocation.parse(left.dump()) == left
    close(node.state_dir, "GPU-0", ended=ended)
    drained, nodes = moves.examine(settings)
    assert (drained.severity, drained.where) == ("info" if ended else "warning", "GPU-0")
    assert ("interrupted" in drained.what) == (not ended)
    assert (nodes.severity, nodes.where) == ("warning", "left")
    assert "GPU-1" in nodes.what
    if not ended:
        with drain.alone(node.ledger):
            assert moves.examine(settings)[0].severity == "info"


def test_gpu_ends_drained_though_the_file_was_removed_meanwhile(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    node = Tenants(str(tmp_path))
    monkeypatch.setattr(drain, "repair_all", lambda *_: close(node.state_dir))
    assert (
        drain.drain(node.ledger, host(16, 16), "GPU-0", Rules(), 1, lambda step: places.quiet) == []
    )
    assert unhealthy.read_drained(node.state_dir)["GPU-0"].ended
