"""Score the nodes that have room for a pod, from 0 to 10.

Two things count. The first is how full the node is afterwards: binpack prefers full nodes, spread
empty ones. The second is fragmentation: how much the pod grows the expected part of the free GPUs
that the next pod cannot use. So a share goes beside other shares, and whole GPUs stay whole.
Source: Weng et al., "Beware of Fragmentation", USENIX ATC 2023.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import combinations
from typing import Any

import numpy as np
from numpy.typing import NDArray

from vcuda_oci.model.policies import MIG
from vcuda_oci.model.request import Part
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.system.settings_file import SPREAD

from ..cluster.cluster import Cluster
from ..cluster.node_entry import Entry
from ..model.gpu_arrays import Rows
from ..model.pod_request import TOPOLOGY, PodAsk

Floats = NDArray[np.float64]

MOST = 10
# Assumed requests of the next pod, in GPUs, and their probabilities.
SHAPES = ((0.1, 0.1), (0.25, 0.2), (0.5, 0.2), (1, 0.3), (2, 0.1), (4, 0.05), (8, 0.05))
# Weight of the node's fullness; the rest is the weight of fragmentation.
_FULLNESS = {SPREAD: 0.8}
_STEEPNESS = 3.0


def scores(
    cluster: Cluster, ask: PodAsk, names: Sequence[str], *, reserve: bool = True
) -> list[int]:
    """Return the scores in the order of `names`; 0 for an unknown node.

    reserve: whether fragmentation counts, which keeps GPUs whole for pods that need whole ones.
    """
    with cluster.lock:
        if ask.isolation == MIG:
            return [_with_instances(cluster, cluster.nodes.get(name), ask) for name in names]
        rows, part = cluster.rows(names), ask.single
        before = free_of(cluster, rows)
        count = np.maximum(cluster.arrays.at(rows, "there").sum(axis=1), 1)
        after = _after(cluster, rows, before, ask, part) if part else before
        left = np.maximum(after.sum(axis=1) - (0 if part else ask.core / 100), 0)
        full = 1 - left / count
        order = ask.node_order or cluster.rules.placement
        if order == SPREAD:
            full = 1 - full
        worse = (useless(after) - useless(before)) / max(1, ask.core // 100)
        behind = 1 / (1 + np.exp(_STEEPNESS * worse))
        weight = _FULLNESS.get(order, 0.3) if reserve else 1
        value = weight * full + (1 - weight) * behind
        whole = part.core // 100 if part else 0
        if TOPOLOGY in (order, ask.gpu_order) and whole > 1:
            entries = [cluster.nodes.get(name) for name in names]
            value = (value + np.array([closeness(each, whole) for each in entries])) / 2
        found = np.where(rows >= 0, np.rint(MOST * value), 0)
        return [int(each) for each in np.clip(found, 0, MOST)]


def useless(free: Floats, shapes: Iterable[tuple[float, float]] = SHAPES) -> Floats:
    """(rows): the free capacity, in GPUs, that the next pod cannot use on average.

    free: (rows, columns), the free part of each GPU from 0 to 1. shapes: as `SHAPES`.
    """
    untouched = free >= 1
    whole = untouched.sum(axis=1)
    lost: Floats = np.zeros(len(free))
    for size, likely in shapes:
        if size < 1:
            unused = np.where(free < size, free, 0).sum(axis=1)
        else:
            parts = np.where(untouched, 0, free).sum(axis=1)
            unused = parts + np.where(whole < size, whole, 0)
        lost += likely * unused
    return lost


def free_of(cluster: Cluster, rows: Rows) -> Floats:
    """(rows, columns): the free part of each GPU, of compute or memory, whichever is scarcer."""
    arrays = cluster.arrays
    size = np.maximum(arrays.at(rows, "size"), 1)
    free = np.minimum(arrays.at(rows, "core") / 100, arrays.at(rows, "memory") / size)
    free[~arrays.at(rows, "there")] = 0
    found: Floats = np.clip(free, 0, 1)
    # A GPU counts as wholly free only while no pod holds any of it.
    found[~arrays.at(rows, "untouched") & (found >= 1)] = 0.99
    return found


def rest_of(cluster: Cluster, rows: Rows, part: Part) -> Floats:
    """(rows, columns): what would stay free of each GPU with `part`, a share below 100 %, on it."""
    arrays = cluster.arrays
    size = np.maximum(arrays.at(rows, "size"), 1)
    needed = arrays.needed(rows, part.core, part.memory_bytes)
    memory: Floats = (arrays.at(rows, "memory") - needed) / size
    return np.maximum(np.minimum((arrays.at(rows, "core") - part.core) / 100, memory), 0)


def closeness(entry: Entry | None, count: int) -> float:
    """Return from 0 to 1 how near to each other the best `count` wholly free GPUs are.

    0.5 where the node reports no distances.
    """
    distances = entry.facts.reported.distances if entry else None
    if entry is None or distances is None:
        return 0.5
    held = {share.uuid for share in entry.taken}
    usable = {gpu.uuid for gpu in entry.facts.usable} - held
    free = [n for n, gpu in enumerate(entry.facts.reported.gpus) if gpu.uuid in usable]
    others = [far for n, row in enumerate(distances) for m, far in enumerate(row) if n != m]
    if len(free) < count or not others or min(others) == max(others):
        return 0.5

    def near(first: int) -> list[int]:
        return sorted(free, key=lambda n: (n != first, distances[first][n], n))[:count]

    def mean(chosen: Sequence[int]) -> float:
        pairs = [distances[n][m] for n, m in combinations(chosen, 2)]
        return sum(pairs) / len(pairs)

    best = min(mean(near(first)) for first in free)
    return 1 - (best - min(others)) / (max(others) - min(others))


def _with_instances(cluster: Cluster, entry: Entry | None, ask: PodAsk) -> int:
    """Return the score by `Placed.kept`: the highest if every profile keeps all of its places."""
    found = cluster.find(entry, ask) if entry else Refused("")
    return 0 if isinstance(found, Refused) else round(MOST * found.kept)


def _after(cluster: Cluster, rows: Rows, free: Floats, ask: PodAsk, part: Part) -> Floats:
    """Return `free` as it is with the pod on the GPU that placement will choose."""
    arrays = cluster.arrays
    after: Floats = free.copy()
    allowed = arrays.allowed(rows, ask.wanted)
    whole, core = divmod(part.core, 100)
    if whole:
        usable = arrays.at(rows, "untouched") & allowed
        after[usable & (np.cumsum(usable, axis=1) <= whole)] = 0
        return after
    fits = arrays.fit_share(rows, allowed, core, part.memory_bytes)
    left, memory = arrays.at(rows, "core"), arrays.at(rows, "memory")
    size = np.maximum(arrays.at(rows, "size"), 1)
    sign = -1 if (ask.gpu_order or cluster.rules.placement) == SPREAD else 1
    rank: NDArray[Any] = np.where(fits, sign * (left + memory / size), np.inf)
    best, here = rank.argmin(axis=1), np.arange(len(rows))
    rest, right = rest_of(cluster, rows, part), fits[here, best]
    after[here[right], best[right]] = rest[here[right], best[right]]
    return after
