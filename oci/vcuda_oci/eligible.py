"""Which GPUs a request may have at all, before anything is counted."""

from __future__ import annotations

from .request import ALL_GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from .placement import Gpu
    from .request import Request

_MENDS = {
    "is unhealthy": "reset the GPU, or ask for less or another",
    "is in MIG mode": "name the GPU to have it whole, or ask for less or another",
}


def named(gpus: Sequence[Gpu], request: Request) -> tuple[list[int], str]:
    """Positions of the GPUs that the request may use, in its order, and the first name that is
    none of them.
    """
    if not request.gpus or request.gpus == (ALL_GPUS,):
        return list(range(len(gpus))), ""
    allowed: list[int] = []
    for name in request.gpus:
        found = [at for at, gpu in enumerate(gpus) if name in (gpu.uuid, str(gpu.index))]
        if not found:
            return [], name
        allowed += [at for at in found if at not in allowed]
    return allowed, ""


def barred(
    gpus: Sequence[Gpu], core: int, request: Request, unhealthy: Mapping[str, str]
) -> dict[str, str]:
    """Why some of the GPUs are not for this request, by UUID."""
    found = {}
    for gpu in gpus:
        if gpu.uuid in unhealthy:
            found[gpu.uuid] = f"{gpu.uuid} is unhealthy: {unhealthy[gpu.uuid]}"
        # What divides a GPU already lets nothing else do so; and its parts are no whole GPU to who
        # does not know of them.
        elif gpu.mig is not None and (core % 100 or not request.gpus):
            found[gpu.uuid] = f"{gpu.uuid} is in MIG mode"
    return found


def refusal(barred: Mapping[str, str]) -> tuple[str, str]:
    """Why these are not for the request, and the way out."""
    why = ", ".join(barred.values())
    return why, next(mend for word, mend in _MENDS.items() if word in why)
