"""`make bench` and the soaks, shortened: each finishes and prints its results."""

from __future__ import annotations

import json
import math
import os
import subprocess
import sys
from collections.abc import Mapping
from pathlib import Path
from types import ModuleType

import pytest

from bench import __main__ as benches
from bench import advice, scheduler, shim, suspend, suspend_rows
from bench.agent import agent, cri, scrape
from bench.fences import fences, limits, mps, pods
from bench.starts import crowd, ctr, start
from support.host import cgroups
from support.needed import skip_or_fail

RUNC = "runc-v1" if cgroups.is_v1() else "runc-v2"
ROOT = os.path.dirname(os.path.dirname(os.path.dirname(os.path.abspath(__file__))))
# Of each module, how little.
SHORT: Mapping[ModuleType, Mapping[str, object]] = {
    advice: {"WORKLOADS": 1, "DAYS": 3},
    agent: {"SECONDS": 1, "PODS": 2, "CALLS": 4},
    cri: {"ROUNDS": 2, "WARM_UP": 1},
    crowd: {"ROUNDS": 1, "PROCESSES": 4, "ALONE": 2},
    ctr: {"ROUNDS": 2, "WARM_UP": 1},
    fences: {"SEQUENCES": 5, "EVENTS": 12, "STARTS": 2},
    limits: {"EVENTS": 12, "STARTS": 2, "WARM_UP": 1},
    pods: {"PODS": 20},
    mps: {"CASES": (((30, 70), ("--driver-version", "615.10")),), "SECONDS": 0.5},
    scheduler: {
        **{"SIZES": ((20, 100, None),), "LEASED": (20, 100)},
        **{"FILTERS": 10, "WARMING": 2, "PAIRS": 20, "WARMING_PAIRS": 2},
    },
    scrape: {"ROUNDS": 2},
    shim: {"ROUNDS": 1, "IDLE_SECONDS": 0.2},
    start: {"ROUNDS": 2},
    suspend: {"ROUNDS": 6},
    suspend_rows: {
        **{"LINK_ROUNDS": 1, "EVICTIONS": 2, "CELLS": 2, "CELL_SECONDS": 1.0},
        **{"ROTATION_SECONDS": 5, "QUANTUM": "2s", "GATE_ROUNDS": 1},
    },
}


@pytest.mark.parametrize("group", benches.GROUPS)
def test_a_bench_measures_and_writes_its_figures(
    group: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    if os.geteuid() != 0:
        skip_or_fail("containers take root")
    for module, values in SHORT.items():
        for name, value in values.items():
            monkeypatch.setattr(module, name, value)
    out = tmp_path / "bench.json"
    words = ["--quick", "--row", "30/70"] if group == "shares" else []
    monkeypatch.setattr(sys, "argv", ["bench", "--only", group, *words, "--json-out", str(out)])
    assert benches.main() == 0
    figures = json.loads(out.read_text())
    assert figures
    assert [each["name"] for each in figures if not math.isfinite(each["value"])] == []


@pytest.mark.parametrize(
    "words",
    [
        ("tests.release.soak", "--starts=20", f"--engines={RUNC}"),
        ("tests.release.soak.pods", "--pods=10"),
    ],
    ids=["soak", "soak-pods"],
)
def test_a_soak_ends_without_faults(words: tuple[str, ...], tmp_path: Path) -> None:
    if os.geteuid() != 0:
        skip_or_fail("containers take root")
    out = tmp_path / "soak.json"
    done = subprocess.run(
        [sys.executable, "-m", *words, f"--json-out={out}"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert json.loads(out.read_text())
