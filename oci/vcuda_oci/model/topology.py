"""How near a node's GPUs are to each other, and which of them are nearest: pure.

A distance is a whole number, smaller is nearer. NVLink is nearer than anything else, and the more
links the nearer; then come one board, one PCIe switch, several, one host bridge, one NUMA node, and
the system.
"""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .gpu import Gpu

# NVML_NVLINK_MAX_LINKS and NVML_TOPOLOGY_SYSTEM of nvml.h.
MOST_LINKS = 36
SYSTEM = 50
_NO_LINK, _PER_LEVEL = 100, 10
# How many sets are looked at before the best until then is taken: a step takes 1 to 2 µs.
STEPS = 2000


def distances(
    links: Sequence[Sequence[int]], levels: Sequence[Sequence[int | None]]
) -> list[list[int]] | None:
    """The distance between each two GPUs; of one to itself 0. None: the driver told nothing.

    links: how many NVLinks join the two. levels: what the way over PCIe passes, as
    nvmlGpuTopologyLevel_t has it, 0 to 50; None where it was not told: as far as can be.
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


_WAYS = ("one board", "one PCIe switch", "PCIe switches", "one host bridge", "one NUMA node")


def told(far: int) -> str:
    """What a distance between two GPUs means: "4 NVLinks", "one PCIe switch"."""
    if far < _NO_LINK:
        links = 1 + MOST_LINKS - far
        return f"{links} NVLink{'' if links == 1 else 's'}"
    # Source: nvmlGpuTopologyLevel_t of nvml.h.
    level = (far - _NO_LINK) // _PER_LEVEL // 10
    return _WAYS[level] if level < len(_WAYS) else "the system"


def between(
    some: Sequence[Gpu], all: Sequence[Gpu], matrix: Sequence[Sequence[int]] | None
) -> list[list[int]] | None:
    """The distances between `some`, in their order; matrix: between `all`, or None."""
    if matrix is None:
        return None
    at = {gpu.uuid: position for position, gpu in enumerate(all)}
    positions = [at[gpu.uuid] for gpu in some]
    return [[matrix[a][b] for b in positions] for a in positions]


def are_distances(matrix: object, count: int) -> bool:
    """Whether `matrix` may be those between `count` GPUs."""
    return (
        isinstance(matrix, list)
        and len(matrix) == count
        and all(isinstance(row, list) and len(row) == count for row in matrix)
        and all(type(far) is int and 0 <= far < 1 << 20 for row in matrix for far in row)
    )


def remoteness(far: Sequence[Sequence[int]], one: int, all_of_them: Sequence[int]) -> int:
    """The sum of the distances from `one` to all: the greater, the less is missed without it."""
    row = far[one]
    return sum([row[other] for other in all_of_them])


def closest(
    far: Sequence[Sequence[int]],
    candidates: Sequence[int],
    count: int,
    beside: int | None = None,
    steps: int = STEPS,
) -> tuple[list[int], int]:
    """The `count` candidates that are nearest to each other and to `beside`, in the candidates'
    order, and the sum of the distances between all of these.

    far: the distances between the GPUs that the others are positions of. Of equally near sets the
    one whose loss leaves the nearest others behind, then the first one. Exact where the search ends
    within `steps`, as it does for any 8 GPUs; else what was found until then, which is never worse
    than taking the nearest one by one.
    """
    here = range(len(candidates))
    row = [remoteness(far, one, candidates) for one in candidates]
    # The distance counts first, what is left behind then: one number for both.
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
    """The cheapest `count` of what costs `alone` each, and `pairs` for each two: branch and bound.

    best: positions, rising.
    """

    def __init__(self, alone: list[int], pairs: list[list[int]], count: int, steps: int) -> None:
        self._pairs, self._steps = pairs, steps
        self._least = min(pairs[a][b] for a in range(len(alone)) for b in range(a))
        found = [_one_by_one(alone, pairs, count, first) for first in range(len(alone))]
        cost, self.best = min(found)
        # What costs the same and comes first is found, too.
        self._cost = cost + 1
        self._grow([], 0, alone, 0, count)

    def _grow(
        self, chosen: list[int], cost: int, added: list[int], start: int, missing: int
    ) -> None:
        """Look at all sets that have `chosen`, which cost `cost`, and `missing` from `start` on.

        added: what each would cost beside those chosen.
        """
        if not missing:
            self._cost, self.best = cost, chosen
            return
        missing -= 1
        # Those to come are at least as far from each other as the nearest two.
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
    """What `count` cost that are taken one by one, `first` first, and which they are."""
    added, chosen, cost = list(alone), [first], alone[first]
    left = [at for at in range(len(alone)) if at != first]
    for _ in range(count - 1):
        added = [before + more for before, more in zip(added, pairs[chosen[-1]])]
        nearest = min(left, key=added.__getitem__)
        left.remove(nearest)
        chosen.append(nearest)
        cost += added[nearest]
    return cost, sorted(chosen)
