"""How long 300 processes of four containers take to start at once, against one alone.

One is loading the shim, cuInit, a context and an allocation. Crowds and single ones take turns.
"""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable

from bench.result import Figure
from bench.starts.start import SOFTGPU
from shim.conftest import Clients, DriverRoot
from support.gpu import guest

ROUNDS = 9
CONTAINERS = 4
PROCESSES = 300
ALONE = 20  # one after the other, for one figure


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a process was refused its memory."""
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(prefix="vb", dir="/dev/shm")
        stack.callback(shutil.rmtree, folder)
        root = folder + "/driver"
        subprocess.run([SOFTGPU, "create", root], check=True, stdout=subprocess.DEVNULL)
        stack.callback(subprocess.run, [SOFTGPU, "destroy", root], check=True)
        share = guest.share(DriverRoot(root).uuids[0], guest.GIB)
        guests = [guest.Guest(f"{folder}/{n}", root, [share]) for n in range(CONTAINERS)]
        client = Clients(folder)("crowd")
        ratios = []
        for number in range(ROUNDS):
            say(f"round {number + 1} of {ROUNDS}")
            alone = statistics.median(_seconds(client, guests[:1], 1) for _ in range(ALONE))
            crowd = _seconds(client, guests, PROCESSES // CONTAINERS)
            ratios.append(crowd / (alone * PROCESSES / len(os.sched_getaffinity(0))))
    name = f"crowd.{PROCESSES} starts at once"
    return [Figure(name, statistics.median(ratios), "x one alone, per core", 3.0, {})]


def _seconds(client: str, guests: list[guest.Guest], processes: int) -> float:
    """From the first start to the last answer, of crowds that start in every container at once."""
    command = [client, str(processes), str(guest.MIB)]
    crowds = [each.start(*command, stdin=subprocess.DEVNULL) for each in guests]
    found = [json.loads(crowd.communicate(timeout=120)[0]) for crowd in crowds]
    if any(each["answers"] != {"0": processes} for each in found):
        raise RuntimeError(f"{client}: {found}")
    ended: float = max(each["ended"] for each in found)
    return ended - min(each["began"] for each in found)
