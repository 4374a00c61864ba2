"""The first process of a container, for an agent without a low-level runtime in its image."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from vcuda_hook.live import container_processes
from vcuda_oci.ledger import liveness


def write_state(folder: Path, later: int) -> list[str]:
    """The words that run a runtime that does not exist. later: than this process's start."""
    state = {"init_process_pid": os.getpid()}
    state["init_process_start"] = liveness.start_time(os.getpid()) + later
    (folder / "box").mkdir()
    (folder / "box/state.json").write_text(json.dumps(state))
    return [f"{folder}/runc", "--root", str(folder)]


def test_state_file_names_the_first_process_without_a_runtime(tmp_path: Path) -> None:
    words = write_state(tmp_path, 0)
    assert container_processes.state_of(words, "box") == ("running", os.getpid())


def test_ended_process_of_a_state_file_is_none(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        container_processes.init_of(write_state(tmp_path, 1), "box")


@pytest.mark.parametrize("answer", ["", "[]", '{"status": "running"}', '{"pid": null}'])
def test_answer_without_a_pid_is_no_process(tmp_path: Path, answer: str) -> None:
    runtime = tmp_path / "runc"
    runtime.write_text(f"#!/bin/sh\nprintf '%s' '{answer}'\n")
    runtime.chmod(0o755)
    with pytest.raises(ProcessLookupError):
        container_processes.state_of([str(runtime)], "box")
