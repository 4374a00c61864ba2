"""poststop releases what the stopped container held, and never fails."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import pytest

from unit.ground import ROOT, left_in, record, shares_of, write
from vcuda_oci.claim import Rules, limits_page
from vcuda_oci.ledger import Ledger

PROGRAM = (
    f"import sys; sys.path[:0] = [{ROOT + '/oci'!r}, {ROOT + '/runtime_hook'!r}]; "
    "from vcuda_hook.hook import main; main()"
)


NOT_STATES = [b"", b"garbage", b"[]", b'"x"', b"{}", b"\xff", b"[" * 100_000, b'{"id": 5}']


class Hook:
    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(f"{folder}/state")
        self.config = write(f"{folder}/c.toml", f'state-dir = "{folder}/state"')

    def holds(self, allocation: Any) -> None:
        with self.ledger:
            self.ledger.write(allocation, limits_page(allocation, Rules()))

    def __call__(self, *words: str, state: Any = b"{}") -> tuple[int, str]:
        """Exit status and stderr."""
        ran = subprocess.run(
            [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, "--config", self.config, *words],
            input=state if isinstance(state, bytes) else json.dumps(state).encode(),
            capture_output=True,
        )
        return ran.returncode, ran.stderr.decode()


@pytest.fixture
def hook(tmp_path: Any) -> Hook:
    return Hook(tmp_path)


def test_a_stopped_containers_share_is_free_again_and_twice_is_once(hook: Hook) -> None:
    hook.holds(record("box"))
    hook.holds(record("other"))
    for _ in range(2):
        assert hook("poststop", "box", state={"id": "box", "status": "stopped"}) == (0, "")
        assert shares_of(hook.ledger) == {"other": record().shares}


def test_another_instance_of_the_container_keeps_its_share(hook: Hook) -> None:
    hook.holds(record("pod-u.main", container_id="c2"))
    assert hook("poststop", "pod-u.main", state={"id": "c1"}) == (0, "")
    assert shares_of(hook.ledger) == {"pod-u.main": record().shares}


def test_poststop_finds_the_allocation_by_the_containers_own_name(hook: Hook) -> None:
    hook.holds(record("box"))
    hook.holds(record("other"))
    assert hook("poststop", state={"id": "box", "annotations": None}) == (0, "")
    assert shares_of(hook.ledger) == {"other": record().shares}


def test_a_pods_container_keeps_its_share_for_its_return(hook: Hook) -> None:
    pod = {"uid": "u", "sandbox_id": "s1"}
    hook.holds(record("pod-u.main", container_id="c1", pod=pod))
    assert hook("poststop", "pod-u.main", state={"id": "c1"}) == (0, "")
    assert shares_of(hook.ledger) == {"pod-u.main": record().shares}


NO_STATE = "vcuda-container-hook: standard input: is no container's state; "


@pytest.mark.parametrize("state", NOT_STATES)
def test_a_state_that_is_none_is_one_line_and_no_failure(hook: Hook, state: bytes) -> None:
    hook.holds(record("box"))
    assert hook("poststop", "box", state=state) == (
        0,
        NO_STATE + "let the runtime call this hook\n",
    )
    assert shares_of(hook.ledger) == {"box": record().shares}


@pytest.mark.parametrize("kind", ["prestart", "createRuntime", "createContainer"])
@pytest.mark.parametrize("state", NOT_STATES)
def test_a_creating_hook_refuses_what_is_no_state(hook: Hook, kind: str, state: bytes) -> None:
    assert hook(kind, state=state) == (1, NO_STATE + "let the runtime call this hook\n")
    assert left_in(hook.ledger.state_dir) == []


@pytest.mark.parametrize("bundle", ["", "relative", "/nowhere", "/nowhere\n/x", 7, None])
def test_a_creating_hook_refuses_a_bundle_that_is_none(hook: Hook, bundle: object) -> None:
    status, line = hook("createRuntime", state={"id": "c", "pid": 9, "bundle": bundle})
    assert (status, line.count("\n")) == (1, 1)
    assert left_in(hook.ledger.state_dir) == []


def test_a_broken_record_is_one_line_and_no_failure(hook: Hook) -> None:
    write(hook.ledger.allocations + "/box.json", "{")
    status, line = hook("poststop", "box", state={"id": "box"})
    assert status == 0
    assert line.startswith(f"vcuda-container-hook: {hook.ledger.allocations}/box.json: is not a")
    assert line.count("\n") == 1
    assert left_in(hook.ledger.state_dir) == ["allocations/box.json"]


def test_a_state_dir_that_is_gone_or_a_bad_setting_is_no_failure(hook: Hook, tmp_path: Any) -> None:
    assert hook("poststop", "box", state={"id": "box"}) == (0, "")
    write(hook.config, "stat-dir = '/x'")
    assert hook("poststop", "box", state={"id": "box"}) == (
        0,
        f"vcuda-container-hook: {hook.config}:1: unknown key 'stat-dir'; "
        "did you mean 'state-dir'?\n",
    )


@pytest.mark.parametrize(
    "words", [(), ("start",), ("prestart", "box"), ("poststop", "box", "more"), ("--bad",)]
)
def test_an_unknown_call_shows_how_to_call_it(hook: Hook, words: tuple[str, ...]) -> None:
    status, text = hook(*words)
    assert (status, text.partition("\n")[0]) == (
        2,
        "usage: vcuda-container-hook [--config FILE] KIND [ALLOCATION] < STATE",
    )


def test_one_command_is_the_hook_of_both_ends(hook: Hook, tmp_path: Any) -> None:
    hook.holds(record("box"))
    asked = {"annotations": {"vcuda.io/core": "30"}}
    write(f"{tmp_path}/bundle/config.json", json.dumps(asked))
    state = {"id": "box", "pid": 1, "bundle": f"{tmp_path}/bundle"}
    for status in ("creating", "created"):
        answer = hook("byStatus", state={**state, "status": status})
        assert answer == hook("createRuntime", state=state)
        assert answer[0] == 1  # process 1 is no container
        assert shares_of(hook.ledger) == {"box": record().shares}
    assert hook("byStatus", state={**state, "status": "stopped"}) == (0, "")
    assert shares_of(hook.ledger) == {}
