"""What the shim adds to a driver call, in nanoseconds: the same program with and without it.

Bare and shimmed processes take turns, so that the machine's mood falls on both. The container is a
private mount namespace, as in the shim's tests; its limits are on and not reached.
"""

from __future__ import annotations

import contextlib
import glob
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable

from bench.result import Figure
from bench.start import REPOSITORY, SOFTGPU
from shim import guest

ROUNDS = 9
# A driver call, the goal for what is added to it, and what peers add; "/2" is two threads at once.
CALLS: dict[str, tuple[float | None, dict[str, float]]] = {
    "cuLaunchKernel": (5, {"vcuda-controller": 79, "HAMi-core": 25, "vgpu-manager": 14}),
    "cuLaunchKernel/2": (5, {"vcuda-controller": 136, "HAMi-core": 163, "vgpu-manager": 127}),
    "cuMemAlloc + cuMemFree": (
        40,
        {"vcuda-controller": 1638, "HAMi-core": 431, "vgpu-manager": 2028},
    ),
    "cuMemAlloc + cuMemFree/2": (
        100,
        {"vcuda-controller": 2791, "HAMi-core": 1159, "vgpu-manager": 3511},
    ),
    "cuMemAlloc + cuMemFree, 10000 live": (40, {"HAMi-core": 16000}),
    "cuMemGetInfo": (None, {"vcuda-controller": 1575, "HAMi-core": 423, "vgpu-manager": 2024}),
    "cuGetProcAddress": (30, {"vcuda-controller": 8990, "HAMi-core": 1960, "vgpu-manager": 39}),
    "load + cuInit": (
        300_000,
        {"vcuda-controller": 9e7, "HAMi-core": 7e5, "vgpu-manager": 8.7e6},
    ),
}


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: the client failed on one side or the other."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="vb", dir="/dev/shm")
        stack.callback(shutil.rmtree, folder)
        root = folder + "/driver"
        subprocess.run([SOFTGPU, "create", root], check=True, stdout=subprocess.DEVNULL)
        stack.callback(subprocess.run, [SOFTGPU, "destroy", root], check=True)
        client = _compiled(folder)
        container = guest.Guest(folder + "/guest", root, [_share_of(root)])
        bare: list[dict[str, float]] = []
        shimmed: list[dict[str, float]] = []
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            bare.append(_bare(client, root))
            shimmed.append(json.loads(container.run(client)))
    return [
        Figure(f"shim.{call}", _median(shimmed, call) - _median(bare, call), "ns added", *rest)
        for call, rest in CALLS.items()
    ] + [
        Figure(
            "shim.cuMemGetInfo in all",
            _median(shimmed, "cuMemGetInfo"),
            "ns",
            5,
            {"prototype": 1.4},
        )
    ]


def _median(rounds: list[dict[str, float]], call: str) -> float:
    return statistics.median(one[call] for one in rounds)


def _share_of(root: str) -> guest.Gpu:
    """Nearly the whole GPU: paced and limited, but never made to wait."""
    listed = subprocess.run(
        [root + "/usr/bin/nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
        env={"SOFTGPU_ROOT": root, "LD_LIBRARY_PATH": root + "/usr/lib/x86_64-linux-gnu"},
        check=True,
        capture_output=True,
        text=True,
    )
    return guest.share(listed.stdout.strip(), 8 * guest.GIB, 99)


def _compiled(folder: str) -> str:
    (headers,) = glob.glob(f"{REPOSITORY}/build/venv/lib/python3*/site-packages/nvidia/*/include")
    client = folder + "/calls"
    source = REPOSITORY + "/tests/bench/calls.c"
    command = ["gcc", "-std=gnu11", "-O2", "-isystem", headers, "-o", client, source]
    subprocess.run([*command, "-ldl", "-pthread"], check=True)
    return client


def _bare(client: str, root: str) -> dict[str, float]:
    libraries = os.path.join(root, "usr/lib/x86_64-linux-gnu")
    done = subprocess.run(
        [client],
        env={"LD_LIBRARY_PATH": libraries, "SOFTGPU_ROOT": root},
        check=False,
        capture_output=True,
        text=True,
    )
    if done.returncode:
        raise RuntimeError(f"{client}: {done.stderr}")
    found: dict[str, float] = json.loads(done.stdout)
    return found
