"""`vcuda simulate` as a command, which executes the extender's program."""

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
PUBLIC_PODS = """\
name,cpu_milli,memory_mib,num_gpu,gpu_milli,gpu_spec,qos,pod_phase,creation_time,deletion_time,scheduled_time
p-1,4000,15258,1,500,T4|P100,BE,Running,0,100,0
p-2,8000,30517,0,0,,BE,Running,5,100,5
p-3,8000,30517,2,1000,,BE,Running,10,100,10
p-4,8000,30517,1,1000,,LS,Running,20,100,20
"""
PUBLIC_NODES = """\
sn,cpu_milli,memory_mib,gpu,model
host-1,64000,262144,2,T4
host-2,32000,262144,0,
"""
QUOTA = '{"kind": "ConfigMap", "data": {"gpu_quota": "{\\"be\\": {\\"quota\\": {\\"T4\\": 1}}}"}}'
VCUDA = "import sys; from vcuda_hook.cli.main import main; sys.exit(main())"
TOLD = {"pods": 2, "without_gpu": 0}
CLUSTER = ("--nodes", "1x1:H100:80GiB")


def simulate(*words: str, path: str = "") -> subprocess.CompletedProcess[str]:
    """path: PATH for the extender's program; "": the folder of this Python's programs."""
    environment = {**os.environ, "PATH": path or os.path.dirname(sys.executable)}
    command = [sys.executable, "-c", VCUDA, "simulate", *words]
    return subprocess.run(command, capture_output=True, text=True, env=environment, timeout=120)


def test_a_replayed_trace_is_printed_as_table_and_json(tmp_path: Any) -> None:
    trace, saved = f"{tmp_path}/trace.csv", f"{tmp_path}/saved.jsonl"
    with open(trace, "w") as file:
        file.write(TRACE)
    words = (*CLUSTER, "--policy", "binpack", "--policy", "fgd")
    result = simulate(trace, *words, "--save", saved)
    assert (result.returncode, result.stderr) == (0, "")
    first, heading, _, *rows = result.stdout.splitlines()
    assert first == "2 pods ask for 1.2 GPUs; there are 1 on 1 nodes"
    assert heading.split()[:4] == ["POLICY", "PLACED", "AT", "ONCE"]
    assert [row.split()[:9] for row in rows] == [
        ["binpack", "100.0", "%", "50.0", "/", "-", "9", "/", "9"],
        ["fgd", "100.0", "%", "50.0", "/", "-", "9", "/", "9"],
    ]
    found = json.loads(simulate(saved, *words, "--json").stdout)
    assert (found["cluster"], found["trace"]) == ({"nodes": 1, "gpus": 1}, {**TOLD, "gpus": 1.2})
    assert list(found["policies"]) == ["binpack", "fgd"]
    for each in found["policies"].values():
        assert each["wait_seconds"] == {"p50": 0, "p99": 9, "most": 9}
        assert each["latency_ms"]["p50"] > 0


def test_the_public_traces_files_are_replayed_under_a_quota(tmp_path: Any) -> None:
    files = {"pods.csv": PUBLIC_PODS, "nodes.csv": PUBLIC_NODES, "quota.json": QUOTA}
    for name, text in files.items():
        with open(f"{tmp_path}/{name}", "w") as file:
            file.write(text)
    words = (f"{tmp_path}/pods.csv", "--nodes", f"{tmp_path}/nodes.csv", "--policy", "binpack")
    quota = ("--quota", f"{tmp_path}/quota.json")
    result = simulate(*words, *quota)
    assert (result.returncode, result.stderr) == (0, "")
    lines = result.stdout.splitlines()
    assert lines[:2] == [
        "3 pods ask for 3.5 GPUs; there are 2 on 1 nodes",
        "1 more pods ask for no GPU and are left out",
    ]
    assert lines[-1] == "binpack: namespace be used at most 0.5 of 1 cards of T4"
    found = json.loads(simulate(*words, *quota, "--json").stdout)
    assert found["trace"] == {"pods": 3, "gpus": 3.5, "without_gpu": 1}
    binpack = found["policies"]["binpack"]
    assert (binpack["placed"], binpack["never_fits"]) == (2, 1)
    assert binpack["quota"] == {
        "refused": 1,
        "never_placed": 1,
        "used": [{"namespace": "be", "model": "T4", "most": 0.5, "limit": 1}],
    }
    free = json.loads(simulate(*words, "--json").stdout)["policies"]["binpack"]
    assert (free["placed"], free["quota"], free["whole_at_once_percent"]) == (3, None, 50)


def test_a_bad_trace_is_one_line_and_no_table(tmp_path: Any) -> None:
    trace = f"{tmp_path}/trace.csv"
    with open(trace, "w") as file:
        file.write(TRACE + "c,2,10,sixty,\n")
    result = simulate(trace, *CLUSTER)
    assert (result.returncode, result.stdout) == (1, "")
    line = f"vcuda simulate: {trace}:4: core cannot be 'sixty'; "
    assert (result.stderr.startswith(line), result.stderr.count("\n")) == (True, 1)


def test_missing_extender_is_reported(tmp_path: Any) -> None:
    result = simulate("--help", path=str(tmp_path))
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr == (
        "vcuda: simulate: vcuda-scheduler-extender: not installed; "
        "install the package vcuda-scheduler-extender\n"
    )
