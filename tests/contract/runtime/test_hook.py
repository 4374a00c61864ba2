"""poststop releases an ended container's share and never fails; no hook trusts its input."""

from __future__ import annotations

import json
import os
import pty
import subprocess
import sys
from typing import Any

import pytest

from support.files import ROOT, write
from support.ledger.samples import left_in, record, shares_of
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.pages import limits

PROGRAM = (
    f"import sys; sys.path[:0] = [{ROOT + '/oci'!r}, {ROOT + '/runtime_hook'!r}]; "
    "from vcuda_hook.hooks.main import main; main()"
)


WHOLE = b'{"ociVersion": "1.0.2", "id": "box", "pid": 7, "bundle": "/b", "annotations": {}}'
NOT_STATES = [
    b"",
    b"garbage",
    b"[]",
    b'"x"',
    b"{}",
    b"\xff",
    b"[" * 100_000,
    b'{"id": 5}',
    *(WHOLE[:size] for size in (1, 24, 40, 57, len(WHOLE) - 1)),
    WHOLE * 2,
    b"\0" * 100,
    b"\xef\xbb\xbf" + WHOLE,
    b'{"id": "box", "pid": ' + b"1" * 9999 + b"}",
]


class Hook:
    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(f"{folder}/state")
        self.config = write(f"{folder}/c.toml", f'state-dir = "{folder}/state"')
        self.words = [sys.executable, "-I", "-S", "-B", "-c", PROGRAM, "--config", self.config]

    def add_record(self, allocation: Any) -> None:
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))

    def __call__(self, *words: str, state: Any = b"{}") -> tuple[int, str]:
        """Exit status and stderr."""
        ran = subprocess.run(
            [*self.words, *words],
            input=state if isinstance(state, bytes) else json.dumps(state).encode(),
            capture_output=True,
        )
        return ran.returncode, ran.stderr.decode()


@pytest.fixture
def hook(tmp_path: Any) -> Hook:
    return Hook(tmp_path)


def test_a_stopped_containers_share_is_free_again_and_twice_is_once(hook: Hook) -> None:
    hook.add_record(record("box"))
    hook.add_record(record("other"))
    for _ in range(2):
        assert hook("poststop", "box", state={"id": "box", "status": "stopped"}) == (0, "")
        assert shares_of(hook.ledger) == {"other": record().shares}


def test_another_instance_of_the_container_retains_its_share(hook: Hook) -> None:
    hook.add_record(record("pod-u.main", container_id="c2"))
    assert hook("poststop", "pod-u.main", state={"id": "c1"}) == (0, "")
    assert shares_of(hook.ledger) == {"pod-u.main": record().shares}


def test_poststop_finds_the_allocation_by_the_containers_own_name(hook: Hook) -> None:
    hook.add_record(record("box"))
    hook.add_record(record("other"))
    assert hook("poststop", state={"id": "box", "annotations": None}) == (0, "")
    assert shares_of(hook.ledger) == {"other": record().shares}


def test_pods_container_retains_its_share_for_a_restart(hook: Hook) -> None:
    pod = {"uid": "u", "sandbox_id": "s1"}
    hook.add_record(record("pod-u.main", container_id="c1", pod=pod))
    assert hook("poststop", "pod-u.main", state={"id": "c1"}) == (0, "")
    assert shares_of(hook.ledger) == {"pod-u.main": record().shares}


NO_STATE = "vcuda-container-hook: standard input: not a container's state; "


@pytest.mark.parametrize("state", NOT_STATES)
def test_a_state_that_is_none_is_one_line_and_no_failure(hook: Hook, state: bytes) -> None:
    hook.add_record(record("box"))
    assert hook("poststop", "box", state=state) == (
        0,
        NO_STATE + "let the runtime call this hook (allocation box)\n",
    )
    assert shares_of(hook.ledger) == {"box": record().shares}


@pytest.mark.parametrize("kind", ["prestart", "createRuntime", "createContainer"])
@pytest.mark.parametrize("state", NOT_STATES)
def test_a_creating_hook_refuses_what_is_no_state(hook: Hook, kind: str, state: bytes) -> None:
    assert hook(kind, state=state) == (1, NO_STATE + "let the runtime call this hook\n")
    assert left_in(hook.ledger.state_dir) == []


HOSTILE = [
    {"id": "../box"},
    {"id": "a/b"},
    {"id": "x\0y"},
    {"id": "two\nlines"},
    {"id": "\ud800"},
    {"id": "x" * 5000},
    {"id": "c", "annotations": {"io.kubernetes.cri.sandbox-uid": "../.."}},
    {"id": "c", "bundle": "/etc/../proc/self"},
    {"id": "c", "bundle": "/x\0y", "pid": 10**30},
    {"id": "c", "bundle": "/\ud800", "pid": True},
    {"id": "c", "bundle": "/dev", "pid": -(2**63)},
    {"id": "c", "bundle": "/" + "x" * 9999, "pid": [1]},
]


@pytest.mark.parametrize("state", HOSTILE, ids=str)
def test_a_hostile_state_is_one_line_and_touches_nothing(hook: Hook, state: object) -> None:
    hook.add_record(record("box"))
    before = left_in(hook.ledger.state_dir)
    for kind, expected in (("createRuntime", 1), ("createContainer", 1), ("poststop", 0)):
        status, lines = hook(kind, state=state)
        assert (status, lines.count("\n") <= 1, "Traceback" in lines) == (expected, True, False)
    assert left_in(hook.ledger.state_dir) == before


@pytest.mark.parametrize("closed", ["<&-", ">&-", "2>&-", "<&- >&- 2>&-", "2>/dev/full"])
def test_a_caller_that_closed_a_stream_harms_nothing(hook: Hook, closed: str) -> None:
    """Otherwise the first opened file would get the number of standard error."""
    hook.add_record(record("box"))
    before = left_in(hook.ledger.state_dir)
    for kind, expected in (("createRuntime", 1), ("poststop", 0)):
        words = ["sh", "-c", f'exec "$@" {closed}', "sh", *hook.words, kind]
        ran = subprocess.run(words, input=b"{", capture_output=True)
        stderr = b"" if "2>" in closed else NO_STATE.encode() + b"let the runtime call this hook\n"
        assert (ran.returncode, ran.stdout, ran.stderr) == (expected, b"", stderr)
    assert left_in(hook.ledger.state_dir) == before
    assert shares_of(hook.ledger) == {"box": record().shares}


def test_the_hook_does_not_wait_for_a_terminals_input(hook: Hook) -> None:
    ours, terminal = pty.openpty()
    try:
        words = [*hook.words, "createRuntime"]
        ran = subprocess.run(words, stdin=terminal, capture_output=True, timeout=60)
    finally:
        os.close(ours)
        os.close(terminal)
    assert ran.stderr.decode() == NO_STATE + "let the runtime call this hook\n"
    assert ran.returncode == 1


@pytest.mark.parametrize("bundle", ["", "relative", "/nowhere", "/nowhere\n/x", 7, None])
def test_a_creating_hook_refuses_a_bundle_that_is_none(hook: Hook, bundle: object) -> None:
    status, line = hook("createRuntime", state={"id": "c", "pid": 9, "bundle": bundle})
    assert (status, line.count("\n")) == (1, 1)
    assert left_in(hook.ledger.state_dir) == []


def test_a_broken_record_is_one_line_and_no_failure(hook: Hook) -> None:
    write(hook.ledger.allocations + "/box.json", "{")
    status, line = hook("poststop", "box", state={"id": "box"})
    assert status == 0
    where = f"{hook.ledger.allocations}/box.json"
    assert line.startswith(f"vcuda-container-hook: {where}: is not a")
    assert line.endswith(" (allocation box)\n")
    assert line.count("\n") == 1
    assert left_in(hook.ledger.state_dir) == ["allocations/box.json"]


def test_missing_state_dir_or_bad_setting_is_no_failure(hook: Hook, tmp_path: Any) -> None:
    assert hook("poststop", "box", state={"id": "box"}) == (0, "")
    write(hook.config, "stat-dir = '/x'")
    assert hook("poststop", "box", state={"id": "box"}) == (
        0,
        f"vcuda-container-hook: {hook.config}:1: unknown key 'stat-dir'; "
        "did you mean 'state-dir'? (allocation box)\n",
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
    hook.add_record(record("box"))
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
