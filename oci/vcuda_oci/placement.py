"""Which GPU's share a request gets: pure, so that node, command and scheduler decide alike."""

from __future__ import annotations

from .allocation import GpuShare
from .config import SPREAD
from .request import ALL_GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .request import Request


class Gpu:
    """A GPU of the node. index: as NVML counts; minor: of /dev/nvidia<minor>."""

    def __init__(self, uuid: str, index: int, minor: int, memory_bytes: int, model: str) -> None:
        self.uuid, self.index, self.minor = uuid, index, minor
        self.memory_bytes, self.model = memory_bytes, model


class Chosen:
    """The shares that the request gets."""

    def __init__(self, shares: list[GpuShare]) -> None:
        self.shares = shares


class Refused:
    """A refusal is a value with a reason; every front shows the same one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Free:
    """What is left of one GPU."""

    def __init__(self, gpu: Gpu, taken: Sequence[GpuShare]) -> None:
        mine = [share for share in taken if share.uuid == gpu.uuid]
        self.gpu = gpu
        self.core = 100 - sum(share.core_percent for share in mine)
        self.memory = gpu.memory_bytes - sum(share.memory_bytes for share in mine)
        self.untouched = not mine


def choose(
    gpus: Sequence[Gpu], taken: Sequence[GpuShare], request: Request, placement: str
) -> Chosen | Refused:
    """Place `request` on `gpus`, of which `taken` is in use.

    Whole GPUs come first and are wholly unused ones; a fraction takes the fullest GPU that fits
    (binpack) or the emptiest (spread). Equal ones go by index, so the answer is the same each time.
    """
    allowed, unknown = _allowed(gpus, request)
    if unknown:
        return Refused(f"no GPU '{unknown}' here; there is {_listed(gpus)}")
    free = [_Free(gpu, taken) for gpu in allowed]
    core = request.core or 100 * len(allowed)
    whole, fraction = divmod(core, 100)
    if not fraction and request.memory_bytes is not None:
        most = sum(sorted((gpu.memory_bytes for gpu in allowed), reverse=True)[:whole])
        if request.memory_bytes > most:
            return Refused(f"{_gib(request.memory_bytes)} asked, {whole} whole have {_gib(most)}")
    untouched = [left for left in free if left.untouched]
    if len(untouched) < whole:
        return Refused(f"{len(untouched)} of {len(free)} GPUs are wholly free; {whole} asked")
    # The fraction is placed beside the whole ones, so leave it the GPUs that are begun already.
    chosen = untouched[:whole]
    shares = [GpuShare(left.gpu.uuid, left.gpu.memory_bytes, 100) for left in chosen]
    if fraction:
        rest = [left for left in free if left not in chosen]
        fitting = [
            left
            for left in rest
            if left.core >= fraction and left.memory >= _fraction_memory(left, fraction, request)
        ]
        if not fitting:
            return Refused(_nothing_fits(rest, fraction, request))
        order = (request.placement or placement) == SPREAD
        best = min(fitting, key=lambda left: _rank(left, spread=order))
        memory = _fraction_memory(best, fraction, request)
        shares.append(GpuShare(best.gpu.uuid, memory, fraction))
    return Chosen(shares)


def _allowed(gpus: Sequence[Gpu], request: Request) -> tuple[list[Gpu], str]:
    """The GPUs that the request may use, in its order, and the first name that is none of them."""
    if not request.gpus or request.gpus == (ALL_GPUS,):
        return list(gpus), ""
    allowed = []
    for name in request.gpus:
        found = [gpu for gpu in gpus if name in (gpu.uuid, str(gpu.index))]
        if not found:
            return [], name
        allowed += [gpu for gpu in found if gpu not in allowed]
    return allowed, ""


def _fraction_memory(left: _Free, fraction: int, request: Request) -> int:
    if request.memory_bytes is not None:
        return request.memory_bytes
    return left.gpu.memory_bytes * fraction // 100


def _rank(left: _Free, spread: bool) -> tuple[int, int, int]:
    sign = -1 if spread else 1
    return (sign * left.core, sign * left.memory, left.gpu.index)


def _nothing_fits(rest: Sequence[_Free], fraction: int, request: Request) -> str:
    memory = request.memory_bytes
    asked = f"{fraction} %" + (f" and {_gib(memory)}" if memory is not None else "")
    if not rest:
        return f"no GPU is left for the fraction; {asked} asked"
    best = max(rest, key=lambda left: (min(left.core, fraction), left.memory, -left.gpu.index))
    return f"largest free share is {best.core} % and {_gib(best.memory)} on {best.gpu.uuid}; " + (
        f"{asked} asked"
    )


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.index} ({gpu.uuid})" for gpu in gpus) or "none"


def _gib(size: int) -> str:
    """Bytes in GiB, rounded down so that what is said to be free is free."""
    hundredths = size * 100 // (1 << 30)
    if hundredths == 0 and size:
        return f"{size / (1 << 20):.1f} MiB"
    text = f"{hundredths // 100}.{hundredths % 100:02d}"
    return (text[:-1] if text.endswith("0") else text) + " GiB"
