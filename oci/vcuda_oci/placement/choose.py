"""Which GPU's share a request gets: pure, so that node, command and scheduler decide alike."""

from __future__ import annotations

from ..model import topology
from ..model.allocation import GpuShare
from ..model.gpu import Gpu
from ..model.policies import FIXED, WEIGHTED
from ..model.sizes import gib
from ..system.settings_file import SPREAD, TOPOLOGY
from . import eligible
from .eligible import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..container.request import Request
    from ..model.policies import Terms

__all__ = ["Chosen", "Gpu", "Refused", "choose", "free_memory", "resized"]


class Chosen:
    """The shares that the request gets."""

    def __init__(self, shares: list[GpuShare]) -> None:
        self.shares = shares


class _Free:
    """What is left of one GPU, and of the promises that its memory allows.

    at: its position among the GPUs. core, memory: how many percent and bytes others hold.
    """

    def __init__(self, gpu: Gpu, at: int, core: int, memory: int, overcommit: float) -> None:
        self.gpu, self.at = gpu, at
        self.core = 100 - core
        self.unpromised = int(gpu.memory_bytes * overcommit) - memory
        # Nobody gets more than there is; and what was promised may be more than may be now.
        self.memory = max(0, min(self.unpromised, gpu.memory_bytes))
        self.untouched = not core


def choose(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    request: Request,
    placement: str,
    overcommit: float = 1,
    distances: Sequence[Sequence[int]] | None = None,
    unhealthy: Mapping[str, str] | None = None,
) -> Chosen | Refused:
    """Place `request` on `gpus`, of which `taken` is in use.

    Whole GPUs come first and are wholly unused ones: those nearest to each other, and of equally
    near ones those that leave the nearest behind. A fraction takes the fullest GPU that fits
    (binpack, topology) or the emptiest (spread) and leaves enough for the whole ones; where there
    are some, it is near them first. With "topology" it begins the least linked of unused GPUs.
    Equal ones go by index, so the answer is the same each time. Memory is promised up to
    `overcommit` times; above once, the memory of fractions is managed. Of whole GPUs it never is:
    nobody else is there.

    distances: between the GPUs in their order (see topology); without them all are equally near.
    unhealthy: the reason of each GPU that is not to be taken, by UUID; with a GPU its MIG devices
    are not. Those are GPUs here, but a program uses one of them and no other GPU beside it: whole
    ones are taken where no GPU is left, and several where they are named. A refusal tells what it
    might have had.
    """
    allowed, refusal = eligible.named(gpus, request)
    if refusal:
        return refusal
    core = request.core or 100 * len(allowed)
    barred = eligible.barred([gpus[at] for at in allowed], core, request, unhealthy or {})
    if barred and len(barred) == len(allowed):
        return Refused(*eligible.refusal(barred))
    free = [left for left in _left(gpus, allowed, taken, overcommit) if left.gpu.uuid not in barred]
    answer = _place(free, len(allowed), core, request, placement, overcommit > 1, distances)
    if barred and isinstance(answer, Refused):
        why, mend = eligible.refusal(barred)
        return Refused(f"{answer.reason} ({why})", mend)
    return answer


def resized(
    share: GpuShare,
    gpu: Gpu,
    beside: Sequence[GpuShare],
    core: int,
    memory_bytes: int,
    terms: Terms,
    overcommit: float,
) -> GpuShare | Refused:
    """`share` of `gpu` with other figures, where `beside` is in use by others.

    Whatever it has it may keep, and more only as one that is placed. Memory that the driver cannot
    move is promised once.
    """
    (left,) = _left([gpu], [0], beside, overcommit if share.managed else 1)
    most_core = max(left.core, share.core_percent)
    most_memory = max(left.memory, share.memory_bytes)
    if core > most_core or memory_bytes > most_memory:
        return Refused(
            f"at most {most_core} % and {gib(most_memory)} of {gpu.uuid} can be its own; "
            f"{core} % and {gib(memory_bytes)} asked"
        )
    return _share(gpu.uuid, memory_bytes, core, terms, share.managed)


def free_memory(gpu: Gpu, taken: Sequence[GpuShare], overcommit: float) -> int:
    """The most bytes that one container could still be promised on `gpu`."""
    return _left([gpu], [0], taken, overcommit)[0].memory


def _place(
    free: list[_Free],
    count: int,
    core: int,
    request: Request,
    placement: str,
    managed: bool,
    distances: Sequence[Sequence[int]] | None,
) -> Chosen | Refused:
    """`choose`, of `count` GPUs of which `free` may be taken, `core` percent."""
    whole, fraction = divmod(core, 100)
    untouched = [left for left in free if left.untouched]
    if len(untouched) < whole or not free:
        return Refused(f"{len(untouched)} of {count} GPUs are wholly free; {whole or 1} asked")
    parts = []
    if fraction:
        beside = [left for left in free if len(untouched) - left.untouched >= whole]
        order = request.placement or placement
        fitting = _fitting(beside, fraction, request, order, distances, bool(whole))
        if not fitting:
            return Refused(_nothing_fits(beside, fraction, request))
        best, chosen = _with_the_nearest(fitting, untouched, whole, distances)
        parts = [_part(best, fraction, request, managed)]
    else:
        gpus = [left for left in untouched if left.gpu.mig is None]
        chosen, _ = _nearest(gpus if len(gpus) >= whole else untouched, whole, distances)
        if _memory(chosen) < (request.memory_bytes or 0):
            chosen = sorted(untouched, key=lambda left: -left.memory)[:whole]
            most = _memory(chosen)
            if most < (request.memory_bytes or 0):
                asked = gib(request.memory_bytes or 0)
                return Refused(f"{whole} wholly free have at most {gib(most)}; {asked} asked")
    return Chosen([GpuShare(left.gpu.uuid, left.gpu.memory_bytes, 100) for left in chosen] + parts)


def _left(
    gpus: Sequence[Gpu], positions: Sequence[int], taken: Sequence[GpuShare], overcommit: float
) -> list[_Free]:
    """What is left of the GPUs at these positions."""
    core = dict.fromkeys([gpu.uuid for gpu in gpus], 0)
    memory = dict(core)
    for share in taken:
        uuid = share.uuid
        if uuid in core:
            core[uuid] += share.core_percent
            memory[uuid] += share.memory_bytes
    return [
        _Free(gpu, at, core[gpu.uuid], memory[gpu.uuid], overcommit)
        for at, gpu in [(at, gpus[at]) for at in positions]
    ]


def _nearest(
    untouched: list[_Free],
    count: int,
    distances: Sequence[Sequence[int]] | None,
    beside: _Free | None = None,
    searches: int = 1,
) -> tuple[list[_Free], int]:
    """`count` of them and how far they are from each other and from `beside`, in all.

    searches: among how many such questions the time for one is divided.
    """
    if distances is None or not count:
        return untouched[:count], 0
    by_position = {left.at: left for left in untouched}
    at = None if beside is None else beside.at
    steps = topology.STEPS // searches
    chosen, far = topology.closest(distances, list(by_position), count, at, steps)
    return [by_position[position] for position in chosen], far


def _with_the_nearest(
    fitting: list[_Free],
    untouched: list[_Free],
    whole: int,
    distances: Sequence[Sequence[int]] | None,
) -> tuple[_Free, list[_Free]]:
    """Where the fraction goes, and the whole GPUs beside it. fitting: the best first."""
    if distances is None or not whole:
        return fitting[0], [left for left in untouched if left is not fitting[0]][:whole]
    found = []
    for best in fitting:
        others = [left for left in untouched if left is not best]
        found.append((best, *_nearest(others, whole, distances, best, len(fitting))))
    best, chosen, _ = min(found, key=lambda answer: answer[2])
    return best, chosen


def _part(left: _Free, fraction: int, request: Request, managed: bool) -> GpuShare:
    memory = _fraction_memory(left, fraction, request)
    return _share(left.gpu.uuid, memory, fraction, request.terms, managed)


def _share(uuid: str, memory: int, core: int, terms: Terms, managed: bool) -> GpuShare:
    """The part of a GPU that others share, under its policy; of a whole one it means nothing."""
    if terms.policy == FIXED or core == 100:
        return GpuShare(uuid, memory, core, managed=managed)
    weight = terms.weight if terms.policy == WEIGHTED else core
    return GpuShare(
        *(uuid, memory, core, terms.policy),
        *(terms.core_limit, weight, terms.priority, managed),
    )


def _fraction_memory(left: _Free, fraction: int, request: Request) -> int:
    if request.memory_bytes is not None:
        return request.memory_bytes
    return left.gpu.memory_bytes * fraction // 100


def _memory(gpus: Sequence[_Free]) -> int:
    return sum(left.memory for left in gpus)


def _fitting(
    free: Sequence[_Free],
    fraction: int,
    request: Request,
    order: str,
    distances: Sequence[Sequence[int]] | None,
    last: bool,
) -> list[_Free]:
    """Those that hold the fraction, the best first.

    last: of equal ones the last by index, so that the first are left for whole GPUs.
    """
    fitting = [
        left
        for left in free
        if left.core >= fraction and left.memory >= _fraction_memory(left, fraction, request)
    ]
    sign = -1 if order == SPREAD else 1
    kept: dict[int, int] = {}
    if order == TOPOLOGY and distances is not None:
        unused = [left.at for left in free if left.untouched]
        # How near it is to the unused ones: what is lost to them with it.
        kept = {at: -sum([distances[at][other] for other in unused]) for at in unused}

    def rank(left: _Free) -> tuple[int, int, int, int]:
        index = -left.gpu.index if last else left.gpu.index
        return sign * left.core, kept.get(left.at, 0), sign * left.unpromised, index

    return sorted(fitting, key=rank)


def _nothing_fits(free: Sequence[_Free], fraction: int, request: Request) -> str:
    if not free:
        return f"no GPU is left beside the whole ones; {fraction} % of another asked"
    best = max(free, key=lambda left: (min(left.core, fraction), left.memory, -left.gpu.index))
    return (
        f"largest free share is {best.core} % and {gib(best.memory)} on {best.gpu.uuid}; "
        f"{fraction} % and {gib(_fraction_memory(best, fraction, request))} asked"
    )
