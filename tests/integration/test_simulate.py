"""`vcuda simulate` as it is called: two programs, of which the first becomes the second."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from typing import Any

TRACE = """\
name,arrival,duration,core,memory
a,0,10,60,40GiB
b,1,10,60,40GiB
"""
VCUDA = "import sys; from vcuda_hook.cli import main; sys.exit(main())"
CLUSTER = ("--nodes", "1x1:H100:80GiB")


def simulate(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """path: where the extender's program is looked for; "": where this Python's programs are."""
    environment = {**os.environ, "PATH": path or os.path.dirname(sys.executable)}
    command = [sys.executable, "-c", VCUDA, "simulate", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_a_trace_is_replayed_and_told_as_a_table_and_in_json(tmp_path: Any) -> None:
    trace, saved = f"{tmp_path}/trace.csv", f"{tmp_path}/saved.jsonl"
    with open(trace, "w") as file:
        file.write(TRACE)
    words = (*CLUSTER, "--policy", "binpack", "--policy", "fgd")
    told = simulate(trace, *words, "--save", saved)
    assert (told.returncode, told.stderr) == (0, "")
    first, heading, _, *rows = told.stdout.splitlines()
    assert first == "2 pods ask for 1.2 GPUs; there are 1 on 1 nodes"
    assert heading.split()[:4] == ["POLICY", "PLACED", "AT", "ONCE"]
    assert [row.split()[:8] for row in rows] == [
        ["binpack", "100.0", "%", "50.0", "%", "9", "/", "9"],
        ["fgd", "100.0", "%", "50.0", "%", "9", "/", "9"],
    ]
    found = json.loads(simulate(saved, *words, "--json").stdout)
    assert (found["cluster"], found["trace"]) == ({"nodes": 1, "gpus": 1}, {"pods": 2, "gpus": 1.2})
    assert list(found["policies"]) == ["binpack", "fgd"]
    for each in found["policies"].values():
        assert each["wait_seconds"] == {"p50": 0, "p99": 9, "most": 9}
        assert each["latency_ms"]["p50"] > 0


def test_a_bad_trace_is_one_line_and_no_table(tmp_path: Any) -> None:
    trace = f"{tmp_path}/trace.csv"
    with open(trace, "w") as file:
        file.write(TRACE + "c,2,10,sixty,\n")
    told = simulate(trace, *CLUSTER)
    assert (told.returncode, told.stdout) == (1, "")
    line = f"vcuda simulate: {trace}:4: core cannot be 'sixty'; "
    assert (told.stderr.startswith(line), told.stderr.count("\n")) == (True, 1)


def test_where_the_extender_is_not_installed_that_is_said(tmp_path: Any) -> None:
    told = simulate("--help", path=str(tmp_path))
    assert (told.returncode, told.stdout) == (1, "")
    assert told.stderr == (
        "vcuda: simulate: vcuda-scheduler-extender: not installed; "
        "install the package vcuda-scheduler-extender\n"
    )
