"""How much processor time the turn keeper takes beside contended GPUs, in real time."""

from __future__ import annotations

import contextlib
import os
import subprocess
import time
from collections.abc import Sequence

from shim.policy_node import PolicyNode, limits_of
from support.gpu.guest import BUILD, WORKLOAD
from support.shares.judge import gpu
from support.shares.loads import Load

# The static program of the packages.
SHIPPED = os.path.join(BUILD, "lib", "vcuda-turn-keeper")
SETTLING_S = 2.0


def processor_seconds(pid: int) -> float:
    """Processor time of all threads of a process, to the nanosecond."""
    total = 0
    for task in os.listdir(f"/proc/{pid}/task"):
        with open(f"/proc/{pid}/task/{task}/schedstat", encoding="ascii") as stat:
            total += int(stat.read().split()[0])
    return total / 1e9


def part_of_a_core(options: Sequence[str], gpus: int, load: Load, seconds: float) -> float:
    """The keeper's part, while two containers of 30 and 70 % want each of the GPUs.

    options: of `softgpu create`.
    """
    with contextlib.ExitStack() as stack:
        folder, root = stack.enter_context(gpu([*options, "--gpus", str(gpus)]))
        node = PolicyNode(os.path.join(folder, "node"), root)
        guests = [
            (index, node.container(core=core, gpu=str(index)))
            for index in range(gpus)
            for core in ("30", "70")
        ]
        command = [SHIPPED, node.state_dir, str(os.getpid())]
        keeper = subprocess.Popen(command)
        stack.callback(_end, keeper)
        busy = [WORKLOAD, "busy", "--seconds", str(SETTLING_S + seconds + 5), *load.options()]
        for index, guest in guests:
            process = guest.start(*busy, "--device", str(index), stdout=subprocess.DEVNULL)
            stack.callback(_end, process)
        time.sleep(SETTLING_S)
        began, before = time.monotonic(), processor_seconds(keeper.pid)
        words = [limits_of(guest).gpus[0].turn for _, guest in guests]
        time.sleep(seconds)
        used = (processor_seconds(keeper.pid) - before) / (time.monotonic() - began)
        after = [limits_of(guest).gpus[0].turn for _, guest in guests]
        still = [index for (index, _), one, two in zip(guests, words, after) if one == two]
        assert not still, f"no turn has passed on GPUs {still}"
        return used


def _end(process: subprocess.Popen[bytes] | subprocess.Popen[str]) -> None:
    process.kill()
    process.communicate()
