"""A request placed where a scheduler decided: on these GPUs or on none, pure as `choose` is."""

from __future__ import annotations

from ..container.request import Request
from ..system.settings_file import BINPACK
from .choose import Chosen, Refused, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.allocation import GpuShare
    from .choose import Gpu


def place(
    decided: Sequence[GpuShare],
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    request: Request,
    overcommit: float = 1,
    unhealthy: Mapping[str, str] | None = None,
) -> Chosen | Refused:
    """Shares of exactly the GPUs in `decided`, which name them by UUID or index, or a refusal.

    How much is the request's to say: a decision of other amounts was made for another request.
    """
    whole, fraction = divmod(request.core, 100)
    parts = [share for share in decided if share.core_percent < 100]
    amounts = sorted(share.core_percent for share in decided)
    if request.parts is not None:
        from . import parts as several  # no other claim needs it

        return several.place_decided(
            decided, gpus, taken, request.parts, request.terms, overcommit, unhealthy
        )
    if amounts != sorted([100] * whole + ([fraction] if fraction else [])):
        return Refused(f"{added(amounts)} % was decided; {request.core} % is asked")
    memory = request.memory_bytes
    if parts and memory is not None and parts[0].memory_bytes != memory:
        return Refused(f"{parts[0].memory_bytes} bytes were decided; {memory} are asked")
    found = found_of(decided, gpus)
    if isinstance(found, Refused):
        return found
    the_part = [gpu for gpu, share in zip(found, decided) if share in parts]
    the_whole = [gpu for gpu in found if gpu not in the_part]
    shares: list[GpuShare] = []
    of_whole = Request(100 * whole, None if fraction else memory, request.gpus)
    of_part = Request(fraction, memory, request.gpus, request.terms)
    for ones, wanted in ((the_whole, of_whole), (the_part, of_part)):
        if not ones:
            continue
        answer = choose(ones, taken, wanted, BINPACK, overcommit, None, unhealthy)
        if isinstance(answer, Refused):
            return Refused(f"{', '.join(gpu.uuid for gpu in ones)} was decided; {answer.reason}")
        shares += answer.shares
    return Chosen(shares)


def found_of(decided: Sequence[GpuShare], gpus: Sequence[Gpu]) -> list[Gpu] | Refused:
    """The GPUs that were decided, in this order."""
    found: list[Gpu] = []
    for share in decided:
        gpu = next((gpu for gpu in gpus if share.uuid in (gpu.uuid, gpu.name)), None)
        if gpu is None:
            return Refused(f"GPU '{share.uuid}' was decided and is not here")
        if gpu in found:
            return Refused(f"{gpu.uuid} was decided twice for one container")
        found.append(gpu)
    return found


def added(amounts: Sequence[int]) -> str:
    return " + ".join(map(str, amounts))
