"""The fuzzers build, run through what they were given, and find nothing in a run that is short and
always the same; `make fuzz` is the long one."""

from __future__ import annotations

import os
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest

from release.docs.commands import of_page
from release.fuzz import run
from release.fuzz.targets import TARGETS
from support.files import ROOT
from support.makefile import make

RUNS = 500


@pytest.fixture(scope="module", autouse=True)
def built() -> None:
    programs = [f"build/fuzz/{name}" for name in ("launcher", "launcher-answers", "pages")]
    make(*programs)


def test_every_fuzzer_has_inputs_to_begin_with() -> None:
    assert set(run.NAMES) == {run.LAUNCHER, *TARGETS}
    assert all(os.listdir(run.corpus(name)) for name in run.NAMES)


@pytest.mark.parametrize("name", run.NAMES)
def test_a_short_run_finds_nothing(name: str, tmp_path: Any) -> None:
    found = tmp_path / "found"
    found.mkdir()
    options = [f"-runs={RUNS * 50 if name == run.LAUNCHER else RUNS}", "-seed=1", str(found)]
    status, output = run.fuzz(name, [*options, run.corpus(name)], str(tmp_path))
    assert status == 0, output
    # It went further than what it was given.
    assert os.listdir(found) or name == "log-line"
    [count] = re.findall(r"Done (\d+) runs", output)
    assert int(count) >= RUNS


def test_the_pages_commands_fuzz_and_show_an_input_again_and_shrink_what_was_found(
    tmp_path: Path,
) -> None:
    """A second long, and of inputs that are there."""
    new = tmp_path / "new"
    new.mkdir()
    pages = f"{ROOT}/tests/shim/fuzz/corpus"
    instead = {
        "SECONDS=600": "SECONDS=1 ONLY=record",
        "ONLY=record ONLY=record": "ONLY=record",
        "build/fuzz/record-crash-1": f"{run.corpus('record')}/share.json",
        "build/fuzz/pages-crash-1": f"{pages}/{sorted(os.listdir(pages))[0]}",
        " new ": f" {new} ",
        "build/fuzz/found-pages": pages,
    }
    lines = [command.text for command in of_page("CONTRIBUTING.md") if "fuzz" in command.text]
    assert len(lines) == 5
    for line in lines:
        for word, meant in instead.items():
            line = line.replace(word, meant)
        done = subprocess.run(["sh", "-c", line], cwd=ROOT, capture_output=True, text=True)
        assert done.returncode == 0, f"{line}\n{done.stdout}{done.stderr}"
    assert os.listdir(new)
