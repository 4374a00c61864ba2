"""MIG: how often an instance's place turns out wrong, what kills leave over, what a start costs.
MPS: how far unequal shares are from what was asked for. The driver's own memory limits.
"""

from __future__ import annotations

import contextlib
import functools
import json
import random
import shutil
import statistics
import subprocess
import tempfile
from collections.abc import Callable
from pathlib import Path

from bench.fences import limits, mps, pods
from bench.result import Figure
from bench.starts import start
from support.gpu.mig_node import H100, MigNode
from support.gpu.mig_sequences import optimum_fits, ours_fits, random_sequence
from support.gpu.mig_tables import layout, profiles
from vcuda_oci.model.errors import VcudaError

SEQUENCES = 1000
FITTING_PERCENT = 98.0
# GPUs of a node, and events of a sequence: the longest fill nearly all of them.
_NODES = ((8, 70), (4, 30), (2, 12), (1, 10))
# With fewer, some sequences need a place that only their future tells.
_LEAST_GPUS = 4
_SEED = 19
# Random creations, kills and deletions on 8 GPUs; starts of each kind.
EVENTS, STARTS = 1000, 40
_GPUS = 8
_MOST_STEPS = 9  # of a creation or deletion: see mig_node
_START_TIMES = 1.5


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises RuntimeError: a container did not start."""
    folder = tempfile.mkdtemp(prefix="vf", dir="/dev/shm")
    try:
        shares = mps.measure(folder + "/mps", say)
        kills = _kills(Path(folder), say)
        placed = pods.measure(say)
        starts = _starts(folder + "/starts", say)
        limited = limits.measure(Path(folder, "limits"), say)
        return [*_places(say), *kills, *placed, starts, *shares, *limited]
    finally:
        shutil.rmtree(folder)


def _places(say: Callable[[str], None]) -> list[Figure]:
    """Random sequences of instances that come and go, placed as they come.

    A sequence counts as right if all of it is placed, or if not even a search that knows its future
    places all of it. Where that search is given up, the sequence counts as missed.
    """
    figures = []
    for gpus, length in _NODES:
        chance, kinds = random.Random(_SEED), profiles()
        layouts = [layout(f"GPU-{number}") for number in range(gpus)]
        missed = impossible = 0
        for _ in range(SEQUENCES):
            events = random_sequence(chance, len(kinds), length)
            if ours_fits(events, layouts):
                continue
            if optimum_fits(events, kinds, gpus):
                missed += 1
            else:
                impossible += 1
        possible = max(1, SEQUENCES - impossible)
        note = (
            f"{length} events; {missed} of {possible} sequences that an optimum places are missed"
        )
        say(f"{gpus} GPUs: {note}")
        figures.append(
            Figure(
                f"fences: as an optimum, {gpus} GPU{'s' if gpus > 1 else ''}",
                100 * (1 - missed / SEQUENCES),
                "% of sequences",
                FITTING_PERCENT if gpus >= _LEAST_GPUS else None,
                {},
                note,
                is_least=True,
            )
        )
    return figures


def _kills(folder: Path, say: Callable[[str], None]) -> list[Figure]:
    """Each kill is followed by one sweep; then no instance may be left over, shared or lost."""
    node, chance = MigNode(folder, _GPUS), random.Random(_SEED)
    live: dict[str, int] = {}  # core percent by id
    wrong = orphans = kills = refused = 0
    for number in range(EVENTS):
        event = chance.random()
        if live and event < 0.38:
            id = chance.choice(list(live))
            del live[id]
            if event < 0.13:
                end = functools.partial(node.release, id)
                kills += node.killed(chance.randint(1, _MOST_STEPS), end)
                node.sweep(set(live))
            else:
                node.release(id)
        elif event < 0.55:
            core = chance.choice((10, 20, 40))
            begin = functools.partial(node.claim, f"killed-{number}", core)
            kills += node.killed(chance.randint(1, _MOST_STEPS), begin)
            node.sweep(set(live))
        else:
            core = chance.choice((10, 10, 20, 40, 57))
            try:
                node.claim(str(number), core)
                live[str(number)] = core
            except VcudaError:
                refused += 1
        there, held = node.instances(), node.held()
        orphans += len(set(there) - held)
        wrong += len(held - set(there)) + len(node.ledger.read()[0]) - len(held)
        wrong += set(live) != {record.id for record in node.ledger.read()[0]}
        if number % 100 == 99:
            say(f"{number + 1} of {EVENTS} events: {len(live)} instances, {kills} kills")
    note = f"{EVENTS} events on {_GPUS} GPUs, {kills} kills, {refused} refused as full"
    return [
        Figure("fences: orphan instances", orphans, "instances", 0, {}, note),
        Figure("fences: wrong instances", wrong, "instances", 0, {}, note),
    ]


def _starts(folder: str, say: Callable[[str], None]) -> Figure:
    """create + start by runc, without an agent, beside the same share without MIG."""
    with contextlib.ExitStack() as stack:
        # A node each: after instances have changed the next start asks NVML.
        for isolation, mode in (("turns", ()), ("mig", ("--mig", "0="))):
            start.install(f"{folder}/{isolation}", *H100, *mode)
            remove = [start.SOFTGPU, "destroy", f"{folder}/{isolation}/driver"]
            stack.callback(subprocess.run, remove, check=True)
        bench = start.Bench(folder)
        plain = json.loads(bench.plain)

        def runtime(isolation: str) -> str:
            return f"{folder}/{isolation}/usr/bin/vcuda-container-runtime"

        def config(isolation: str) -> str:
            words = {"vcuda.io/core": "10", "vcuda.io/isolation": isolation}
            return json.dumps({**plain, "annotations": words})

        ratios = []
        for number in range(STARTS + 3):
            once = {
                isolation: bench.once(
                    runtime(isolation), config(isolation), f"{isolation}{number}"
                )[0]
                for isolation in random.sample(("turns", "mig"), 2)
            }
            if number >= 3:  # the first rounds warm caches
                ratios.append(once["mig"] / once["turns"])
        say(f"{STARTS} starts of each kind")
        return Figure(
            "fences: start with an instance",
            statistics.median(ratios),
            "x the same share in turns",
            _START_TIMES,
            {},
            "no agent; the software GPU's NVML takes no time",
        )
