"""Place one part of a request: pure."""

from __future__ import annotations

from ..model import topology
from ..model.allocation import GpuShare
from ..model.gpu import Gpu
from ..model.policies import Terms
from ..model.request import Part
from ..model.sizes import gib
from ..system.settings_file import SPREAD, TOPOLOGY
from . import eligible
from .eligible import Refused
from .free import Free, free_at, share_of
from .rules import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    Distances = Sequence[Sequence[int]] | None


class Node:
    """A node's GPUs and the rules for one request.

    names: the GPUs that the request may use, by UUID or index; empty: any. order: the request's
    own, or that of the rules. The rest: see `choose`.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        taken: Sequence[GpuShare],
        names: Sequence[str],
        terms: Terms,
        order: str,
        rules: Rules,
        distances: Distances,
        unhealthy: Mapping[str, str],
    ) -> None:
        self.gpus, self.taken, self.names, self.terms = gpus, taken, names, terms
        self.order, self.rules = order, rules
        self.distances, self.unhealthy = distances, unhealthy


def place(node: Node, positions: Sequence[int], part: Part) -> list[GpuShare] | Refused:
    """The shares for `part` on the GPUs at `positions`; the whole GPUs first.

    A percentage of memory differs between sizes of GPUs: the smallest size that fits is used.
    """
    if part.memory_percent is None:
        return _place_on(node, positions, part)
    refused: Refused | None = None
    for size in sorted({node.gpus[at].memory_bytes for at in positions}):
        same = [at for at in positions if node.gpus[at].memory_bytes == size]
        answer = _place_on(node, same, part)
        if not isinstance(answer, Refused):
            return answer
        refused = refused or answer
    return refused or _place_on(node, positions, part)


def _place_on(node: Node, positions: Sequence[int], part: Part) -> list[GpuShare] | Refused:
    offered = [node.gpus[at] for at in positions]
    among = eligible.named(offered, node.names)
    if isinstance(among, Refused):
        return among
    allowed = [positions[each] for each in among]
    core = part.core or 100 * len(allowed)
    gpus = [node.gpus[at] for at in allowed]
    barred = eligible.barred(gpus, core, node.names, node.unhealthy)
    if barred and len(barred) == len(allowed):
        return Refused(*eligible.refusal(barred))
    free = [
        left
        for left in free_at(node.gpus, allowed, node.taken, node.rules)
        if left.gpu.uuid not in barred
    ]
    answer = _shares(node, free, len(allowed), core, part)
    if barred and isinstance(answer, Refused):
        why, hint = eligible.refusal(barred)
        return Refused(f"{answer.reason} ({why})", hint)
    return answer


def _shares(
    node: Node, free: list[Free], count: int, core: int, part: Part
) -> list[GpuShare] | Refused:
    """`core` percent of `free`, the healthy ones of `count` GPUs."""
    whole, fraction = divmod(core, 100)
    untouched = [left for left in free if left.untouched]
    if len(untouched) < whole or not free:
        return Refused(f"{len(untouched)} of {count} GPUs are wholly free; {whole or 1} asked")
    last = []
    if fraction:
        beside = [left for left in free if len(untouched) - left.untouched >= whole]
        fitting = _fitting(node, beside, fraction, part, bool(whole))
        if not fitting:
            return Refused(_nothing_fits(beside, fraction, part))
        best, chosen = _with_the_nearest(fitting, untouched, whole, node.distances)
        memory = part.memory_of(fraction, best.gpu.memory_bytes)
        managed = node.rules.overcommit > 1
        last = [share_of(best.gpu.uuid, memory, fraction, node.terms, managed)]
    else:
        gpus = [left for left in untouched if left.gpu.mig is None]
        chosen, _ = _nearest(gpus if len(gpus) >= whole else untouched, whole, node.distances)
        if _memory(chosen) < (part.memory_bytes or 0):
            chosen = sorted(untouched, key=lambda left: -left.memory)[:whole]
            most = _memory(chosen)
            if most < (part.memory_bytes or 0):
                asked = gib(part.memory_bytes or 0)
                return Refused(f"{whole} wholly free have at most {gib(most)}; {asked} asked")
    return [GpuShare(left.gpu.uuid, left.gpu.memory_bytes, 100) for left in chosen] + last


def _nearest(
    untouched: list[Free],
    count: int,
    distances: Distances,
    beside: Free | None = None,
    searches: int = 1,
) -> tuple[list[Free], int]:
    """`count` of them, and the sum of their distances to each other and to `beside`.

    searches: the number of such calls that share the limit on search steps.
    """
    if distances is None or not count:
        return untouched[:count], 0
    by_position = {left.at: left for left in untouched}
    at = None if beside is None else beside.at
    steps = topology.STEPS // searches
    chosen, far = topology.closest(distances, list(by_position), count, at, steps)
    return [by_position[position] for position in chosen], far


def _with_the_nearest(
    fitting: list[Free], untouched: list[Free], whole: int, distances: Distances
) -> tuple[Free, list[Free]]:
    """The GPU for the fraction, and the whole GPUs beside it. fitting: the best first."""
    if distances is None or not whole:
        return fitting[0], [left for left in untouched if left is not fitting[0]][:whole]
    found = []
    for best in fitting:
        others = [left for left in untouched if left is not best]
        found.append((best, *_nearest(others, whole, distances, best, len(fitting))))
    best, chosen, _ = min(found, key=lambda answer: answer[2])
    return best, chosen


def _memory(gpus: Sequence[Free]) -> int:
    return sum(left.memory for left in gpus)


def _fitting(node: Node, free: Sequence[Free], fraction: int, part: Part, last: bool) -> list[Free]:
    """The GPUs that have room for the fraction, the best first.

    last: prefer the last of equal GPUs by index, to leave the first ones for whole GPUs.
    """
    fitting = [
        left
        for left in free
        if left.core >= fraction and left.memory >= part.memory_of(fraction, left.gpu.memory_bytes)
    ]
    sign = -1 if node.order == SPREAD else 1
    links: dict[int, int] = {}
    distances = node.distances
    if node.order == TOPOLOGY and distances is not None:
        unused = [left.at for left in free if left.untouched]
        # The nearer a GPU is to the other unused ones, the more they lose with it.
        links = {at: -sum([distances[at][other] for other in unused]) for at in unused}

    def rank(left: Free) -> tuple[int, int, int, int]:
        index = -left.gpu.index if last else left.gpu.index
        return sign * left.core, links.get(left.at, 0), sign * left.unpromised, index

    return sorted(fitting, key=rank)


def _nothing_fits(free: Sequence[Free], fraction: int, part: Part) -> str:
    if not free:
        return f"no GPU is left beside the whole ones; {fraction} % of another asked"
    best = max(free, key=lambda left: (min(left.core, fraction), left.memory, -left.gpu.index))
    asked = gib(part.memory_of(fraction, best.gpu.memory_bytes))
    return (
        f"largest free share is {best.core} % and {gib(best.memory)} on {best.gpu.uuid}; "
        f"{fraction} % and {asked} asked"
    )
