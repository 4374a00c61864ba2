"""A container counts as dead only where the kernel or its runtime proves it."""

from __future__ import annotations

import errno
import json
import os
import time
from typing import Any

import pytest

from support.files import script
from support.ledger.samples import record
from support.wrapper.fake_runtime import FakeRuntime
from vcuda_oci.ledger import liveness


def answering(folder: Any, body: str) -> list[str]:
    return [script(f"{folder}/runtime", f"#!/bin/sh\n{body}\n"), "--root", f"{folder}/root"]


ALIVE, DEAD = True, False


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("""echo '{"status": "creating"}'""", ALIVE),
        ("""echo '{"status": "created"}'""", ALIVE),
        ("""echo '{"status": "running", "pid": 5}'""", ALIVE),
        ("""echo '{"status": "paused"}'""", ALIVE),
        ("""echo '{"status": "stopped"}'""", DEAD),
        ("""echo '{"status": 5}'""", ALIVE),
        ("echo '{}'", ALIVE),
        ("echo '[]'", ALIVE),
        ("echo stopped", ALIVE),
        ("printf '\\377'", ALIVE),
        ("true", ALIVE),
        ("echo 'container does not exist' >&2; exit 1", DEAD),
        (  # runc 1.1 as it prints it
            """echo 'time="2026-11-21T09:48:27Z" level=error msg="container does not exist"' >&2
            exit 1""",
            DEAD,
        ),
        (  # crun 1.8 as it prints it
            """echo 'error opening file `/run/crun/box/status`: No such file or directory' >&2
            exit 1""",
            DEAD,
        ),
        ("echo 'cannot load libseccomp.so: No such file or directory' >&2; exit 127", ALIVE),
        ("echo 'permission denied' >&2; exit 1", ALIVE),
        ("exit 1", ALIVE),
        ("kill -9 $$", ALIVE),
        ("""echo '{"status": "stopped"}'; exit 1""", ALIVE),
    ],
)
def test_the_runtimes_answer_decides(tmp_path: Any, body: str, expected: bool) -> None:
    assert liveness.is_alive(record(runtime=answering(tmp_path, body))) is expected


def test_it_asks_for_the_state_of_that_container_below_that_root(tmp_path: Any) -> None:
    runtime = answering(
        tmp_path, f'echo "$@" >{tmp_path}/asked; read line; echo "$?" >>{tmp_path}/asked'
    )
    liveness.is_alive(record(runtime=runtime, container_id="c1"))
    # Nothing on stdin: the engine's own may be a pipe that a program waits for.
    assert (tmp_path / "asked").read_text() == f"--root {tmp_path}/root state c1\n1\n"


def test_missing_runtime_proves_no_end_but_its_state_folder_does(tmp_path: Any) -> None:
    words = [f"{tmp_path}/gone", "--root", f"{tmp_path}/root"]
    assert liveness.is_alive(record(runtime=words)) is DEAD
    os.makedirs(f"{tmp_path}/root/box")
    assert liveness.is_alive(record(runtime=words)) is ALIVE
    assert liveness.is_alive(record(runtime=words[:1])) is ALIVE


@pytest.mark.parametrize(("later", "expected"), [(0, ALIVE), (1, DEAD)])
def test_state_file_of_a_missing_runtime_proves_the_end(
    tmp_path: Any, later: int, expected: bool
) -> None:
    """As in the agent's image, while the engine has not deleted the container."""
    state = {"init_process_pid": os.getpid()}
    state["init_process_start"] = liveness.start_time(os.getpid()) + later
    os.makedirs(f"{tmp_path}/root/box")
    (tmp_path / "root/box/state.json").write_text(json.dumps(state))
    words = [f"{tmp_path}/gone", "--root", f"{tmp_path}/root"]
    assert liveness.is_alive(record(runtime=words, container_id="box")) is expected


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOMEM, errno.EAGAIN])
def test_lack_of_descriptors_or_memory_proves_no_end(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch, number: int
) -> None:
    """Then neither the process nor the runtime can be looked at."""
    state = {"init_process_pid": os.getpid(), "init_process_start": 1}
    os.makedirs(f"{tmp_path}/root/box")
    (tmp_path / "root/box/state.json").write_text(json.dumps(state))
    found = record(runtime=["/runtime", "--root", f"{tmp_path}/root"], container_id="box")

    def lacks(*_: object, **__: object) -> int:
        raise OSError(number, os.strerror(number))

    with monkeypatch.context() as patched:
        patched.setattr(liveness, "start_time", lambda pid: 0)
        patched.setattr(os, "posix_spawn", lacks)
        assert liveness.is_alive(found) is ALIVE
    # The runtime is missing, and the process is there but could not be read.
    monkeypatch.setattr(liveness, "start_time", lambda pid: 0)
    assert liveness.is_alive(found) is ALIVE


def test_a_runtime_that_cannot_be_run_is_no_error(tmp_path: Any) -> None:
    (tmp_path / "text").write_text("no program")
    assert liveness.is_alive(record(runtime=[f"{tmp_path}/text"])) is ALIVE


@pytest.mark.parametrize("word", ["a\0b", "\ud800"])
def test_invalid_runtime_arguments_prove_no_end(tmp_path: Any, word: str) -> None:
    asked = FakeRuntime(tmp_path / "bin").words
    assert not liveness.is_alive(record(runtime=asked))
    assert liveness.is_alive(record(runtime=asked, container_id=word))
    assert liveness.is_alive(record(runtime=[*asked, "--root", word]))


def test_a_claim_in_progress_lives_and_a_reused_pid_does_not(tmp_path: Any) -> None:
    gone = answering(tmp_path, "echo 'container does not exist' >&2; exit 1")
    pid = os.getpid()
    started = liveness.start_time(pid)
    assert liveness.is_alive(record(runtime=gone, claimant=[pid, started])) is ALIVE
    assert liveness.is_alive(record(runtime=gone, claimant=[pid, started - 1])) is DEAD


def test_a_claimant_of_unknown_start_does_not_live_for_ever(tmp_path: Any) -> None:
    gone = answering(tmp_path, "echo 'container does not exist' >&2; exit 1")
    assert liveness.is_alive(record(runtime=gone, claimant=[2**22 + 1, 0])) is DEAD


def test_a_zombie_has_ended() -> None:
    child = os.fork()
    if child == 0:
        os._exit(0)
    while liveness.start_time(child):  # until it is one
        time.sleep(0.001)
    os.waitpid(child, 0)
    assert liveness.start_time(child) == 0


@pytest.mark.parametrize(("status", "expected"), [("running", ALIVE), ("stopped", DEAD)])
def test_container_is_alive_while_its_sandbox_is(
    tmp_path: Any, status: str, expected: bool
) -> None:
    runtime = FakeRuntime(tmp_path / "runc")
    runtime.set_state("sandbox1", status)
    held = record(runtime=runtime.words, container_id="c1", pod={"sandbox_id": "sandbox1"})
    assert liveness.is_alive(held) is expected
    assert liveness.container_lives(held) is DEAD


def test_an_id_that_is_no_text_is_not_what_the_runtime_says_is_unknown() -> None:
    """A record may hold any string of JSON."""
    assert not liveness.says_unknown(b"open /run/crun/box/status: No such file", "\ud800")
