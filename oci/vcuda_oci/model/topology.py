"""Distances between a node's GPUs, and the set of GPUs with the smallest distances. Pure.

A distance is a whole number. The order, nearest first: NVLink, nearer with more links; one board;
one PCIe switch; several switches; one host bridge; one NUMA node; the system.
"""

from __future__ import annotations

from .gpu import Gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

# NVML_NVLINK_MAX_LINKS and NVML_TOPOLOGY_SYSTEM of nvml.h.
MOST_LINKS = 36
SYSTEM = 50
_NO_LINK, _PER_LEVEL = 100, 10
# What joins two GPUs at each level below the system. Source: nvmlGpuTopologyLevel_t of nvml.h.
_WAYS = ("one board", "one PCIe switch", "PCIe switches", "one host bridge", "one NUMA node")
# The search stops after this many steps with the best set so far. A step takes 1 to 2 µs.
STEPS = 2000


def distances(
    links: Sequence[Sequence[int]], levels: Sequence[Sequence[int | None]]
) -> list[list[int]] | None:
    """The matrix of distances, 0 from a GPU to itself. None: the driver reports no distance.

    links: matrix of the number of NVLinks. levels: matrix of nvmlGpuTopologyLevel_t, 0 to 50; None:
    not reported, counted as the farthest.
    """
    count = len(links)
    others = [(a, b) for a in range(count) for b in range(count) if a != b]
    if others and not any(links[a][b] or levels[a][b] is not None for a, b in others):
        return None
    found = [[0] * count for _ in range(count)]
    for a, b in others:
        level, joined = levels[a][b], min(links[a][b], MOST_LINKS)
        far = _NO_LINK + _PER_LEVEL * (SYSTEM if level is None else level)
        found[a][b] = 1 + MOST_LINKS - joined if joined else far
    return found


def in_words(far: int) -> str:
    """A distance as text: "4 NVLinks", "one PCIe switch"."""
    if far < _NO_LINK:
        links = 1 + MOST_LINKS - far
        return f"{links} NVLink{'' if links == 1 else 's'}"
    level = (far - _NO_LINK) // _PER_LEVEL // 10
    return _WAYS[level] if level < len(_WAYS) else "the system"


def is_linked(far: int) -> bool:
    """Whether two different GPUs at this distance are joined by NVLink."""
    return 0 < far < _NO_LINK


def between(
    some: Sequence[Gpu], all: Sequence[Gpu], matrix: Sequence[Sequence[int]] | None
) -> list[list[int]] | None:
    """The matrix of distances between `some`. matrix: that between `all`, or None."""
    if matrix is None:
        return None
    at = {gpu.uuid: position for position, gpu in enumerate(all)}
    positions = [at[gpu.uuid] for gpu in some]
    return [[matrix[a][b] for b in positions] for a in positions]


def are_distances(matrix: object, count: int) -> bool:
    """Whether `matrix` is a matrix of distances between `count` GPUs."""
    return (
        isinstance(matrix, list)
        and len(matrix) == count
        and all(isinstance(row, list) and len(row) == count for row in matrix)
        and all(type(far) is int and 0 <= far < 1 << 20 for row in matrix for far in row)
    )


def remoteness(far: Sequence[Sequence[int]], one: int, all_of_them: Sequence[int]) -> int:
    """The sum of the distances from `one` to all."""
    row = far[one]
    return sum([row[other] for other in all_of_them])


def closest(
    far: Sequence[Sequence[int]],
    candidates: Sequence[int],
    count: int,
    beside: int | None = None,
    steps: int = STEPS,
) -> tuple[list[int], int]:
    """The `count` candidates with the smallest sum of distances between them and `beside`.

    Returns the set, in the candidates' order, and that sum. far: matrix of distances; candidates
    and `beside` are positions in it. Among sets with the same sum, the one that leaves the nearest
    candidates over wins, then the first. The result is exact if the search ends within `steps`, as
    it does for any 8 GPUs; otherwise it is at least as good as adding the nearest one by one.
    """
    here = range(len(candidates))
    row = [remoteness(far, one, candidates) for one in candidates]
    # One cost for both criteria: the sum of distances, then the distances of what is left over.
    weight = 1 + sum(row)
    alone = [-lost for lost in row]
    if beside is not None:
        alone = [cost + weight * far[beside][one] for cost, one in zip(alone, candidates)]
    pairs = [[weight * far[a][b] for b in candidates] for a in candidates]
    best = list(here)
    if count == 1:
        best = [alone.index(min(alone))]
    elif count < len(candidates):
        best = _Search(alone, pairs, count, steps).best
    chosen = [candidates[at] for at in best]
    all_of_them = chosen if beside is None else [*chosen, beside]
    return chosen, sum(remoteness(far, one, all_of_them) for one in all_of_them) // 2


class _Search:
    """The cheapest set of `count` positions, found by branch and bound.

    A set costs `alone` for each member and `pairs` for each two of them. best: the set, sorted.
    """

    def __init__(self, alone: list[int], pairs: list[list[int]], count: int, steps: int) -> None:
        self._pairs, self._steps = pairs, steps
        self._least = min(pairs[a][b] for a in range(len(alone)) for b in range(a))
        found = [_one_by_one(alone, pairs, count, first) for first in range(len(alone))]
        cost, self.best = min(found)
        # + 1: an equally cheap set that comes first must be found too.
        self._cost = cost + 1
        self._grow([], 0, alone, 0, count)

    def _grow(
        self, chosen: list[int], cost: int, added: list[int], start: int, missing: int
    ) -> None:
        """Search all sets of `chosen` and `missing` further positions from `start` on.

        cost: that of `chosen`. added: what each position would add to it.
        """
        if not missing:
            self._cost, self.best = cost, chosen
            return
        missing -= 1
        # Lower bound: the pairs that are still to come cost at least the cheapest pair each.
        between = missing * (missing - 1) // 2 * self._least
        for at in range(start, len(added) - missing):
            self._steps -= 1
            if self._steps < 0:
                return
            pair = self._pairs[at]
            then = [before + more for before, more in zip(added, pair)]
            so_far = cost + added[at]
            if so_far + between + sum(sorted(then[at + 1 :])[:missing]) < self._cost:
                self._grow([*chosen, at], so_far, then, at + 1, missing)


def _one_by_one(
    alone: list[int], pairs: list[list[int]], count: int, first: int
) -> tuple[int, list[int]]:
    """The greedy set: `first`, then always the cheapest next. Returns its cost and the set."""
    added, chosen, cost = list(alone), [first], alone[first]
    left = [at for at in range(len(alone)) if at != first]
    for _ in range(count - 1):
        added = [before + more for before, more in zip(added, pairs[chosen[-1]])]
        nearest = min(left, key=added.__getitem__)
        left.remove(nearest)
        chosen.append(nearest)
        cost += added[nearest]
    return cost, sorted(chosen)
