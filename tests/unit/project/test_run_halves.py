"""`make test` runs both halves of the tests, whatever the first one's result."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from support.files import ROOT

SCRIPT = ROOT + "/tests/run-halves"
PLAYED = """#!/bin/sh
echo "$*" >>"$CALLS"
case "$*" in *"-m timed"*) exit "$TIMED";; *) exit "$BESIDE";; esac
"""
OK, FAILED, INTERRUPTED, NO_TESTS = 0, 1, 2, 5


@pytest.mark.parametrize(
    ("beside", "timed", "answer"),
    [
        (OK, OK, OK),
        (FAILED, OK, FAILED),
        (OK, FAILED, FAILED),
        (INTERRUPTED, FAILED, INTERRUPTED),
        (NO_TESTS, OK, OK),
        (OK, NO_TESTS, OK),
        (FAILED, NO_TESTS, FAILED),
        (NO_TESTS, FAILED, FAILED),
        (NO_TESTS, NO_TESTS, NO_TESTS),
    ],
)
def test_both_halves_run_and_either_failure_counts(
    tmp_path: Path, beside: int, timed: int, answer: int
) -> None:
    pytest_stand_in = tmp_path / "pytest"
    pytest_stand_in.write_text(PLAYED)
    pytest_stand_in.chmod(0o755)
    environment = {
        "PATH": os.environ["PATH"],
        "PYTEST": str(pytest_stand_in),
        "CALLS": str(tmp_path / "calls"),
        "BESIDE": str(beside),
        "TIMED": str(timed),
        "TEST_TMP": "disk",
    }
    done = subprocess.run(
        [SCRIPT, "3", "tests/unit", "-k", "ledger"],
        env=environment,
        stdout=subprocess.DEVNULL,
        check=False,
    )
    first, second = (tmp_path / "calls").read_text().splitlines()
    assert done.returncode == answer
    assert "-n 3 --dist loadfile --no-loadscope-reorder -m not timed tests/unit -k ledger" in first
    assert second == "-n 2 --dist loadfile --no-loadscope-reorder -m timed tests/unit -k ledger"
