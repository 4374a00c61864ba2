"""The low-level runtime that the wrapper and `vcuda` choose: runc, or crun if runc is missing."""

from __future__ import annotations

import shutil
import subprocess
import sys

import pytest

from support.files import ROOT
from support.needed import skip_or_fail
from support.wrapper.launcher import Launcher

FIND = "import sys; from vcuda_hook.live import low_level; print(low_level.find(sys.argv[1]))"


def without(hidden: list[str], *command: str) -> str:
    """What the command prints in a mount namespace where these programs cannot be run."""
    hide = "".join(f"mount --bind /dev/null '{path}'; " for path in hidden)
    words = ["unshare", "--mount", "sh", "-ec", hide + 'exec "$@"', "sh", *command]
    ran = subprocess.run(words, capture_output=True, text=True, timeout=60)
    return ran.stdout + ran.stderr


@pytest.fixture
def runtimes() -> dict[str, str]:
    found = {name: shutil.which(name) for name in ("runc", "crun")}
    for name, path in found.items():
        if path is None:
            skip_or_fail(f"{name} is not installed")
    return {name: path for name, path in found.items() if path}


def python_finds(hidden: list[str], name: str) -> str:
    words = [sys.executable, "-c", f"import sys; sys.path[:0] = ['{ROOT}/oci', "]
    words[-1] += f"'{ROOT}/runtime_hook']; {FIND}"
    return without(hidden, *words, name).strip()


def test_crun_runs_containers_where_there_is_no_runc(
    launcher: Launcher, runtimes: dict[str, str]
) -> None:
    launcher.installed.configure(runtime="runc")
    program = launcher.installed.launcher
    assert without([], program, "--version").startswith("runc version ")
    assert without([runtimes["runc"]], program, "--version").startswith("crun version ")
    assert python_finds([], "runc") == runtimes["runc"]
    assert python_finds([runtimes["runc"]], "runc") == runtimes["crun"]


def test_a_named_runtime_other_than_runc_has_no_substitute(
    launcher: Launcher, runtimes: dict[str, str]
) -> None:
    launcher.installed.configure(runtime="crun")
    hidden = [runtimes["crun"]]
    assert "crun: no such runtime in PATH; install runc or crun" in without(
        hidden, launcher.installed.launcher, "--version"
    )
    assert python_finds(hidden, "crun") == "None"
