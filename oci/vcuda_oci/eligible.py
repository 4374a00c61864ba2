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
    "is in MIG mode": "name MIG devices of it, or ask for less or another",
}


def named(gpus: Sequence[Gpu], request: Request) -> tuple[list[int], str]:
    """Positions of the GPUs that the request may use, in its order, and the first name that is
    none of them. A GPU in MIG mode stands for its MIG devices, as far as it has any.
    """
    if not request.gpus or request.gpus == (ALL_GPUS,):
        return _usable(gpus, list(range(len(gpus)))), ""
    allowed: list[int] = []
    for name in request.gpus:
        found = _usable(gpus, [at for at, gpu in enumerate(gpus) if name in _names(gpu)])
        if not found:
            return [], name
        allowed += [at for at in found if at not in allowed]
    return allowed, ""


def _names(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.uuid, gpu.name, *((gpu.parent, str(gpu.index)) if gpu.mig else ()))


def _usable(gpus: Sequence[Gpu], positions: list[int]) -> list[int]:
    return [at for at in positions if not gpus[at].divided] or positions


def barred(
    gpus: Sequence[Gpu], core: int, request: Request, unhealthy: Mapping[str, str]
) -> dict[str, str]:
    """Why some of the GPUs are not for this request, by UUID."""
    found = {}
    for gpu in gpus:
        sick = next((uuid for uuid in (gpu.uuid, gpu.parent) if uuid in unhealthy), "")
        if sick:
            found[gpu.uuid] = f"{sick} is unhealthy: {unhealthy[sick]}"
        elif gpu.divided:
            found[gpu.uuid] = f"{gpu.uuid} is in MIG mode and has no MIG devices"
        # CUDA uses one MIG device, and no GPU beside it.
        elif gpu.mig is not None and core > 100 and not request.gpus:
            found[gpu.uuid] = f"{gpu.parent} is in MIG mode"
    return found


def refusal(barred: Mapping[str, str]) -> tuple[str, str]:
    """Why these are not for the request, and the way out."""
    why = ", ".join(dict.fromkeys(barred.values()))
    return why, next(mend for word, mend in _MENDS.items() if word in why)
