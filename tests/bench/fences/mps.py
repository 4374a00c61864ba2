"""MPS: how far containers with unequal shares are from them, through runc and `vcuda serve`."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import time
from collections.abc import Callable
from typing import Any

from bench.result import Figure
from bench.starts import start
from support.files import ROOT

# Three containers are in namespaces, which drivers have from 615 on.
CASES = (((30, 70), ()), ((20, 30, 50), ("--driver-version", "615.10")))
SECONDS = 3.0
_POINTS = 3
_SETTLE_SECONDS = 1.0
_BUSY = ["/usr/bin/vcuda-workload", "busy", "--kernel-us=10000", "--async=8", "--seconds=600"]


def measure(folder: str, say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a container did not start."""
    figures = []
    for shares, options in CASES:
        place = f"{folder}/{len(shares)}"
        with contextlib.ExitStack() as stack:
            stack.callback(shutil.rmtree, place)
            start.install(place, *options)
            stack.callback(
                subprocess.run, [start.SOFTGPU, "destroy", f"{place}/driver"], check=True
            )
            start.serve(place, stack)
            got = _run(place, shares, stack)
        off = max(abs(got[core] - core) for core in shares)
        text = ", ".join(f"{got[core]:.1f} of {core} %" for core in shares)
        say(f"under MPS: {text}")
        name = f"fences: {len(shares)} containers under MPS"
        figures.append(Figure(name, off, "points off", _POINTS, {}, text))
    return figures


def _run(place: str, shares: tuple[int, ...], stack: contextlib.ExitStack) -> dict[int, float]:
    """By core, the part of the GPU's multiprocessors that the container had over time, percent."""
    bench = start.Bench(place)
    shutil.copy(ROOT + "/build/softgpu/vcuda-workload", bench.bundle + "/rootfs/usr/bin")
    runtime = f"{place}/usr/bin/vcuda-container-runtime"
    namespaces = {}
    for core in shares:
        spec = json.loads(bench.plain)
        spec["process"]["args"] = _BUSY
        words = {"core": str(core), "memory": "1GiB", "isolation": "mps"}
        spec["annotations"] = {f"vcuda.io/{key}": word for key, word in words.items()}
        stack.callback(bench.end, runtime, f"mps{core}")
        pid = bench.begin(runtime, json.dumps(spec), f"mps{core}")
        namespaces[core] = os.stat(f"/proc/{pid}/ns/pid").st_ino
    time.sleep(_SETTLE_SECONDS)
    before = _times(place)
    time.sleep(SECONDS)
    after = _times(place)
    passed = after["clock_ns"] - before["clock_ns"]
    return {
        core: 100 * (_whole_ns(after, one) - _whole_ns(before, one)) / passed
        for core, one in namespaces.items()
    }


def _whole_ns(times: dict[str, Any], namespace: int) -> int:
    """GPU time of the processes of a pid namespace, times the part of the GPU that they filled."""
    return sum(one["whole_ns"] for one in times["processes"] if one["pid_namespace"] == namespace)


def _times(place: str) -> dict[str, Any]:
    told = subprocess.run(
        [start.SOFTGPU, "time", "--json", f"{place}/driver"], check=True, capture_output=True
    ).stdout
    gpu: dict[str, Any] = json.loads(told)["gpus"][0]
    return gpu
