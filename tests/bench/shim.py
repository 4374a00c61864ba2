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
import time
from collections.abc import Callable

from bench.result import Figure
from bench.starts.start import SOFTGPU
from shim.conftest import CLIENTS, LIBRARIES, MOCK_SOURCES, MOCK_UUID
from support.files import ROOT
from support.gpu import guest
from support.gpu.turn_word import HELD, write_turn
from vcuda_oci.pages.layout import LimitsGpu

ROUNDS = 9
# A driver call, the goal for what is added to it, and what peers add; "/2" is two threads at once.
CALLS: dict[str, tuple[float | None, dict[str, float]]] = {
    "cuLaunchKernel": (5, {"vcuda-controller": 79, "HAMi-core": 25, "vgpu-manager": 14}),
    "cuLaunchKernel/2": (5, {"vcuda-controller": 136, "HAMi-core": 163, "vgpu-manager": 127}),
    "cuGraphLaunch": (5, {"vgpu-manager": 25}),
    "cuGraphLaunch/2": (5, {"vgpu-manager": 225}),
    "cuMemcpyDtoDAsync": (5, {}),
    "cuMemcpyDtoDAsync/2": (5, {}),
    "cuMemAlloc + cuMemFree": (
        40,
        {"vcuda-controller": 1638, "HAMi-core": 431, "vgpu-manager": 2028},
    ),
    "cuMemAlloc + cuMemFree/2": (
        100,
        {"vcuda-controller": 2791, "HAMi-core": 1159, "vgpu-manager": 3511},
    ),
    "cuMemAllocAsync + cuMemFreeAsync": (60, {"HAMi-core": 444, "vgpu-manager": 2006}),
    "cuMemAlloc + cuMemFree, 10000 live": (40, {"HAMi-core": 16000}),
    "cuMemGetInfo": (None, {"vcuda-controller": 1575, "HAMi-core": 423, "vgpu-manager": 2024}),
    "cuGetProcAddress": (30, {"vcuda-controller": 8990, "HAMi-core": 1960, "vgpu-manager": 39}),
    "load + cuInit": (
        300_000,
        {"vcuda-controller": 9e7, "HAMi-core": 7e5, "vgpu-manager": 8.7e6},
    ),
}


# On a driver that does nothing, which is what the peers' figures were taken on.
LAUNCHES = ("cuLaunchKernel", "cuLaunchKernel/2", "cuGraphLaunch", "cuGraphLaunch/2")
COPIES = ("cuMemcpyDtoDAsync", "cuMemcpyDtoDAsync/2")
# A launch in a turn, of a container with 50 %, beside the driver in the same process.
IN_A_TURN = {"cuLaunchKernel": 3.0, "cuLaunchKernel/2": 5.0}
DRIVER = "/usr/local/vcuda/driver/cuda"
IDLE_SECONDS = 2.0


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: the client failed on one side or the other."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="vb", dir="/dev/shm")
        stack.callback(shutil.rmtree, folder)
        root = folder + "/driver"
        # The driver's own time for a submission is none of the shim's.
        create = [SOFTGPU, "create", root, "--submit-time", "0us"]
        subprocess.run(create, check=True, stdout=subprocess.DEVNULL)
        stack.callback(subprocess.run, [SOFTGPU, "destroy", root], check=True)
        client = compiled(folder)
        container = guest.Guest(folder + "/guest", root, [_share_of(root)])
        bare, shimmed = _turns(say, "software GPU", client, container)
        mock = mock_driver(folder + "/mock")
        on_mock = guest.Guest(folder + "/mocked", mock, [share(MOCK_UUID)])
        mock_bare, mock_shimmed = _turns(say, "mock driver", client, on_mock)
        metered = guest.Guest(folder + "/metered", mock, [share(MOCK_UUID)], meter_copies=True)
        metered_bare, metered_shimmed = _turns(say, "mock driver, copies metered", client, metered)
        in_turn = {
            driver: _pairs(say, driver, client, guest.Guest(f"{folder}/{at}", of, [gpu]))
            for at, (driver, of, gpu) in enumerate(
                [
                    ("mock driver", mock, share(MOCK_UUID, 50)),
                    ("software GPU", root, _share_of(root, 50)),
                ]
            )
        }
        wakeups, threads = _idle(client, container)
    return [
        *(_added(call, "", bare, shimmed) for call in CALLS if call in bare[0]),
        *(_added(call, " on a mock driver", mock_bare, mock_shimmed) for call in LAUNCHES + COPIES),
        *(_added(call, ", metered", metered_bare, metered_shimmed) for call in COPIES),
        *(
            Figure(
                f"shim.{call} in a turn, {driver}", median_of(rounds, call), "ns added", goal, {}
            )
            for driver, rounds in in_turn.items()
            for call, goal in IN_A_TURN.items()
        ),
        Figure(
            "shim.cuMemGetInfo in all",
            median_of(shimmed, "cuMemGetInfo") - median_of(shimmed, "no call"),
            "ns",
            5,
            {"prototype": 1.4},
        ),
        Figure(
            "shim.idle wake-ups",
            wakeups,
            "per second",
            0,
            {"vcuda-controller": 8.4, "HAMi-core": 8.4, "vgpu-manager": 10},
        ),
        Figure("shim.idle threads", threads, "threads added", 0, {}),
    ]


Rounds = list[dict[str, float]]


def _turns(
    say: Callable[[str], None], driver: str, client: str, container: guest.Guest
) -> tuple[Rounds, Rounds]:
    bare: Rounds = []
    shimmed: Rounds = []
    for number in range(ROUNDS):
        say(f"{driver}: round {number + 1} of {ROUNDS}")
        bare.append(_bare(client, container.driver_root))
        shimmed.append(json.loads(container.run(client)))
    return bare, shimmed


def _pairs(say: Callable[[str], None], driver: str, client: str, container: guest.Guest) -> Rounds:
    write_turn(container, HELD)
    rounds: Rounds = []
    for number in range(ROUNDS):
        say(f"{driver}, in a turn: round {number + 1} of {ROUNDS}")
        rounds.append(json.loads(container.run(client, "pairs", DRIVER)))
    return rounds


def _added(call: str, where: str, bare: Rounds, shimmed: Rounds) -> Figure:
    goal, peers = CALLS[call]
    added = median_of(shimmed, call) - median_of(bare, call)
    return Figure(f"shim.{call}{where}", added, "ns added", goal, peers)


def _idle(client: str, container: guest.Guest) -> tuple[float, float]:
    """Wake-ups per second, and threads beside the program's one, after a launch."""
    process = container.start(client, "idle")
    try:
        assert process.stdout
        if not process.stdout.readline():
            raise RuntimeError(f"{client}: {process.communicate()[1]}")
        time.sleep(0.1)
        before = _switches(process.pid)
        time.sleep(IDLE_SECONDS)
        after = _switches(process.pid)
        threads = len(os.listdir(f"/proc/{process.pid}/task"))
    finally:
        process.kill()
        process.communicate()
    return (after - before) / IDLE_SECONDS, threads - 1


def _switches(pid: int) -> int:
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/status", encoding="ascii") as status:
            total += sum(int(line.split()[1]) for line in status if "ctxt_switches" in line)
    return total


def median_of(rounds: Rounds, call: str) -> float:
    return statistics.median(one[call] for one in rounds)


def share(uuid: str, core_percent: int = 99) -> LimitsGpu:
    """Nearly the whole GPU: paced and limited, but never made to wait."""
    return guest.share(uuid, 8 * guest.GIB, core_percent)


def _share_of(root: str, core_percent: int = 99) -> LimitsGpu:
    listed = subprocess.run(
        [root + "/usr/bin/nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"],
        env={"SOFTGPU_ROOT": root, "LD_LIBRARY_PATH": root + "/usr/lib/x86_64-linux-gnu"},
        check=True,
        capture_output=True,
        text=True,
    )
    return share(listed.stdout.strip(), core_percent)


def _headers() -> str:
    pattern = f"{ROOT}/build/venv/lib/python3*/site-packages/nvidia/cu13/include"
    return glob.glob(pattern)[0]


def compiled(folder: str) -> str:
    client = folder + "/calls"
    source = ROOT + "/tests/bench/calls.c"
    command = ["gcc", "-std=gnu11", "-O2", "-isystem", _headers(), "-o", client, source]
    subprocess.run([*command, "-ldl", "-pthread"], check=True)
    return client


def mock_driver(root: str) -> str:
    libraries = os.path.join(root, LIBRARIES)
    os.makedirs(libraries)
    command = ["gcc", "-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1"]
    command += ["-I", CLIENTS, "-isystem", _headers(), *MOCK_SOURCES]
    command += ["-o", libraries + "/libcuda.so.1"]
    subprocess.run(command, check=True)
    return root


def _bare(client: str, root: str) -> dict[str, float]:
    libraries = os.path.join(root, LIBRARIES)
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
