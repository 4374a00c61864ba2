"""MIG: how often the place of an instance turns out wrong."""

from __future__ import annotations

import random
from collections.abc import Callable

from bench.result import Figure
from support.mig_sequences import optimum_fits, ours_fits, random_sequence
from support.mig_tables import layout, profiles

SEQUENCES = 1000
FITTING_PERCENT = 98.0
# GPUs of a node, and events of a sequence: the longest fill nearly all of them.
_NODES = ((8, 70), (4, 30), (2, 12), (1, 10))
# With fewer, some sequences need a place that only their future tells.
_LEAST_GPUS = 4
_SEED = 19


def measure(say: Callable[[str], None]) -> list[Figure]:
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
