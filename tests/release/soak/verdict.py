"""Whether starts left traces, slowed down, or made the claim server grow."""

from __future__ import annotations

import statistics

from release.soak.starts import PLAIN, WITH_SERVER, WITHOUT_SERVER, Soaked, Times

# Medians of some hundred ratios on a machine that does other work too lie within a few percent.
MOST_SLOWDOWN = 1.10
LEAST_ROUNDS = 100
# Of each of its processes: Python's allocator takes a while until it needs no more.
MOST_GROWTH_BYTES = 512 << 10


def ratio(times: Times, way: str) -> float:
    """A start's time as a multiple of the plain start's of the same round; the median."""
    return statistics.median(one / plain for one, plain in zip(times[way], times[PLAIN]))


def slowdown(soaked: Soaked, way: str) -> float:
    """The last tenth's ratio over the first tenth's."""
    return ratio(soaked.last, way) / ratio(soaked.first, way)


def growth(soaked: Soaked) -> int | None:
    """Bytes by which the process of the claim server that grew most did.

    None: it is no longer the same processes with as many descriptors.
    """
    before, after = soaked.server_before, soaked.server_after
    if {pid: use.descriptors for pid, use in before.items()} != {
        pid: use.descriptors for pid, use in after.items()
    }:
        return None
    return max(after[pid].resident_bytes - use.resident_bytes for pid, use in before.items())


def faults(soaked: Soaked) -> list[str]:
    """A line for each thing that is not as it has to be."""
    found = list(soaked.left)
    grown = growth(soaked)
    if grown is None or grown > MOST_GROWTH_BYTES:
        found.append(f"the claim server: {soaked.server_before}, then {soaked.server_after}")
    for way in (WITH_SERVER, WITHOUT_SERVER):
        is_told = len(soaked.last[way]) >= LEAST_ROUNDS
        if is_told and slowdown(soaked, way) > MOST_SLOWDOWN:
            found.append(f"{way}: {slowdown(soaked, way):.2f} times as slow at the end")
    return found
