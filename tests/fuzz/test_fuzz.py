"""The fuzzers build, run through what they were given, and find nothing in a run that is short and
always the same; `make fuzz` is the long one."""

from __future__ import annotations

import os
import re
import subprocess
from typing import Any

import pytest

from fuzz import run
from fuzz.targets import TARGETS
from unit.ground import ROOT

RUNS = 500


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    programs = ["build/fuzz/front-door", "build/fuzz/front-door-answers"]
    subprocess.run(["make", "--no-print-directory", *programs], cwd=ROOT, check=True)


def test_every_fuzzer_has_inputs_to_begin_with() -> None:
    assert set(run.NAMES) == {run.FRONT_DOOR, *TARGETS}
    assert all(os.listdir(run.corpus(name)) for name in run.NAMES)


@pytest.mark.parametrize("name", run.NAMES)
def test_a_short_run_finds_nothing(name: str, tmp_path: Any) -> None:
    found = tmp_path / "found"
    found.mkdir()
    options = [f"-runs={RUNS * 50 if name == run.FRONT_DOOR else RUNS}", "-seed=1", str(found)]
    status, output = run.fuzz(name, [*options, run.corpus(name)], str(tmp_path))
    assert status == 0, output
    # It went further than what it was given.
    assert os.listdir(found) or name == "log-line"
    [count] = re.findall(r"Done (\d+) runs", output)
    assert int(count) >= RUNS
