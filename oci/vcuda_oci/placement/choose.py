"""Choose GPUs for a request: pure, so that the node, the commands and the scheduler agree."""

from __future__ import annotations

from ..model.allocation import GpuShare
from ..model.gpu import Gpu
from ..model.request import Part, Request
from ..system.settings_file import BINPACK
from . import one_part
from .eligible import Refused
from .one_part import Node
from .rules import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

__all__ = ["Chosen", "Refused", "choose"]

_NO_GPU = "no GPU is left beside the container's others"
_UNKNOWN = "the amount of each GPU is unknown"
_MIG = "a program uses one MIG device at a time; parts of several GPUs are asked for"


class Chosen:
    """The shares that the request gets."""

    def __init__(self, shares: list[GpuShare]) -> None:
        self.shares = shares


def choose(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    request: Request,
    rules: Rules,
    distances: Sequence[Sequence[int]] | None = None,
    unhealthy: Mapping[str, str] | None = None,
    decided: Sequence[GpuShare] = (),
) -> Chosen | Refused:
    """Place `request` on `gpus`, of which `taken` is in use.

    Whole GPUs are placed before fractions, on unused GPUs: those nearest to each other, and among
    equally near ones those that leave the nearest behind. A fraction takes the fullest GPU with
    enough room (binpack, topology) or the emptiest (spread), leaves enough GPUs for the whole ones,
    and is placed near them. With "topology" it takes the least linked of the unused GPUs. Equal
    GPUs go by index, so the answer is always the same. Where memory is promised more than
    once, that of fractions is managed; the memory of whole GPUs never is.

    Each part goes to a different GPU.

    A request that names an order has that instead of the rules' one. distances: between the GPUs in
    their order (see topology); None: all are equally near. unhealthy: the reason for each GPU that
    must not be used, by UUID; it covers the GPU's MIG devices. A program can use one MIG device and
    no other GPU beside it, so whole MIG devices are used only where no whole GPU is left, and
    several only where they are named.

    decided: the shares of a placement decision, which name GPUs by UUID or index. The answer is on
    exactly these GPUs or a refusal. The amounts come from the request: a decision with other
    amounts was made for another request.
    """
    if not request.parts:
        return Refused(_UNKNOWN)
    names = () if request.counted else request.gpus
    # A decision has settled the order.
    order = BINPACK if decided else request.placement or rules.placement
    distances = None if decided else distances
    node = Node(gpus, taken, names, request.terms, order, rules, distances, unhealthy or {})
    return _as_decided(node, request.parts, decided) if decided else _free(node, request.parts)


def _free(node: Node, parts: Sequence[Part]) -> Chosen | Refused:
    usable = [at for at, gpu in enumerate(node.gpus) if len(parts) == 1 or gpu.mig is None]
    if node.gpus and not usable:
        return Refused(_MIG)
    found: list[GpuShare] = []
    for part in parts:
        used = {share.uuid for share in found}
        others = [at for at in usable if node.gpus[at].uuid not in used]
        if used and not others:
            return Refused(_NO_GPU)
        answer = one_part.place(node, others, part)
        if isinstance(answer, Refused):
            return answer
        found += answer
    return Chosen(found)


def _as_decided(node: Node, parts: Sequence[Part], decided: Sequence[GpuShare]) -> Chosen | Refused:
    refusal = _other_amounts(parts, decided)
    if refusal:
        return refusal
    positions = _positions(node.gpus, decided)
    if isinstance(positions, Refused):
        return positions
    pairs = list(zip(decided, positions))
    found: list[GpuShare] = []
    for part in parts:
        mine, pairs = pairs[: len(part.sizes)], pairs[len(part.sizes) :]
        answer = _place_part(node, part, mine)
        if isinstance(answer, Refused):
            return answer
        found += answer
    return Chosen(found)


def _place_part(
    node: Node, part: Part, decided: Sequence[tuple[GpuShare, int]]
) -> list[GpuShare] | Refused:
    """Place the whole GPUs and the fraction separately, on the GPUs decided for each."""
    whole, fraction = part.core - part.core % 100, part.core % 100
    for share, at in decided:
        memory = part.memory_of(fraction, node.gpus[at].memory_bytes)
        is_stated = part.memory_bytes is not None or part.memory_percent is not None
        if share.core_percent < 100 and is_stated and share.memory_bytes != memory:
            return Refused(f"{share.memory_bytes} bytes were decided; {memory} are asked")
    found: list[GpuShare] = []
    for core in (whole, fraction):
        ones = [at for share, at in decided if (share.core_percent == 100) == (core == whole)]
        if not ones:
            continue
        memory_bytes = None if core == whole and fraction else part.memory_bytes
        percent = None if core == whole else part.memory_percent
        answer = one_part.place(node, ones, Part(core, memory_bytes, percent))
        if isinstance(answer, Refused):
            uuids = ", ".join(node.gpus[at].uuid for at in ones)
            return Refused(f"{uuids} was decided; {answer.reason}")
        found += answer
    return found


def _other_amounts(parts: Sequence[Part], decided: Sequence[GpuShare]) -> Refused | None:
    at = 0
    for part in parts:
        mine = decided[at : at + len(part.sizes)]
        if sorted(share.core_percent for share in mine) != sorted(part.sizes):
            break
        at += len(mine)
    else:
        if at == len(decided):
            return None
    was = " + ".join(str(share.core_percent) for share in decided)
    now = " + ".join(str(part.core) for part in parts)
    return Refused(f"{was} % was decided; {now} % is asked")


def _positions(gpus: Sequence[Gpu], decided: Sequence[GpuShare]) -> list[int] | Refused:
    """The positions of the decided GPUs, in the order of the decision."""
    found: list[int] = []
    for share in decided:
        at = next((at for at, gpu in enumerate(gpus) if share.uuid in (gpu.uuid, gpu.name)), -1)
        if at < 0:
            return Refused(f"GPU '{share.uuid}' was decided and is not here")
        if at in found:
            return Refused(f"{gpus[at].uuid} was decided twice for one container")
        found.append(at)
    return found
