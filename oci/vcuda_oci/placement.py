"""Which GPU's share a request gets: pure, so that node, command and scheduler decide alike."""

from __future__ import annotations

from .allocation import GpuShare
from .config import SPREAD
from .policies import FIXED, WEIGHTED
from .request import ALL_GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from .request import Request


class Gpu:
    """A GPU of the node. index: as NVML counts; minor: of /dev/nvidia<minor>.

    bus_id: as the kernel writes it, "0000:01:00.0". arch: compute capability, "9.0". brand: NVML's,
    in small letters, "tesla".
    """

    def __init__(
        self,
        uuid: str,
        index: int,
        minor: int,
        memory_bytes: int,
        model: str,
        bus_id: str = "",
        arch: str = "",
        brand: str = "",
    ) -> None:
        self.uuid, self.index, self.minor = uuid, index, minor
        self.memory_bytes, self.model = memory_bytes, model
        self.bus_id, self.arch, self.brand = bus_id, arch, brand


class Chosen:
    """The shares that the request gets."""

    def __init__(self, shares: list[GpuShare]) -> None:
        self.shares = shares


class Refused:
    """A refusal is a value with a reason; every front shows the same one."""

    def __init__(self, reason: str) -> None:
        self.reason = reason


class _Free:
    """What is left of one GPU, and of the promises that its memory allows."""

    def __init__(self, gpu: Gpu, taken: Sequence[GpuShare], overcommit: float) -> None:
        mine = [share for share in taken if share.uuid == gpu.uuid]
        self.gpu = gpu
        self.core = 100 - sum(share.core_percent for share in mine)
        self.unpromised = int(gpu.memory_bytes * overcommit) - sum(s.memory_bytes for s in mine)
        # Nobody gets more than there is; and what was promised may be more than may be now.
        self.memory = max(0, min(self.unpromised, gpu.memory_bytes))
        self.untouched = not mine


def choose(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    request: Request,
    placement: str,
    overcommit: float = 1,
) -> Chosen | Refused:
    """Place `request` on `gpus`, of which `taken` is in use.

    Whole GPUs come first and are wholly unused ones; a fraction takes the fullest GPU that fits
    (binpack) or the emptiest (spread) and leaves enough for the whole ones. Equal ones go by index,
    so the answer is the same each time. Memory is promised up to `overcommit` times; above once,
    the memory of fractions is managed. Of whole GPUs it never is: nobody else is there.
    """
    allowed, unknown = _allowed(gpus, request)
    if unknown:
        return Refused(f"no GPU '{unknown}' here; there is {_listed(gpus)}")
    free = [_Free(gpu, taken, overcommit) for gpu in allowed]
    core = request.core or 100 * len(allowed)
    whole, fraction = divmod(core, 100)
    untouched = [left for left in free if left.untouched]
    if len(untouched) < whole or not free:
        return Refused(f"{len(untouched)} of {len(free)} GPUs are wholly free; {whole or 1} asked")
    parts = []
    if fraction:
        order = request.placement or placement
        beside = [left for left in free if len(untouched) - left.untouched >= whole]
        best = _best_fitting(beside, fraction, request, order, last=bool(whole))
        if best is None:
            return Refused(_nothing_fits(beside, fraction, request))
        untouched = [left for left in untouched if left is not best]
        parts = [_part(best, fraction, request, overcommit > 1)]
    elif _memory(untouched[:whole]) < (request.memory_bytes or 0):
        untouched.sort(key=lambda left: -left.memory)
        most = _memory(untouched[:whole])
        if most < (request.memory_bytes or 0):
            asked = _gib(request.memory_bytes or 0)
            return Refused(f"{whole} wholly free have at most {_gib(most)}; {asked} asked")
    chosen = untouched[:whole]
    return Chosen([GpuShare(left.gpu.uuid, left.gpu.memory_bytes, 100) for left in chosen] + parts)


def free_memory(gpu: Gpu, taken: Sequence[GpuShare], overcommit: float) -> int:
    """The most bytes that one container could still be promised on `gpu`."""
    return _Free(gpu, taken, overcommit).memory


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


def _part(left: _Free, fraction: int, request: Request, managed: bool) -> GpuShare:
    """The part of a GPU that others share, under the request's policy."""
    uuid, memory, terms = left.gpu.uuid, _fraction_memory(left, fraction, request), request.terms
    if terms.policy == FIXED:
        return GpuShare(uuid, memory, fraction, managed=managed)
    weight = terms.weight if terms.policy == WEIGHTED else fraction
    return GpuShare(
        *(uuid, memory, fraction, terms.policy),
        *(terms.core_limit, weight, terms.priority, managed),
    )


def _fraction_memory(left: _Free, fraction: int, request: Request) -> int:
    if request.memory_bytes is not None:
        return request.memory_bytes
    return left.gpu.memory_bytes * fraction // 100


def _memory(gpus: Sequence[_Free]) -> int:
    return sum(left.memory for left in gpus)


def _best_fitting(
    free: Sequence[_Free], fraction: int, request: Request, order: str, last: bool
) -> _Free | None:
    """last: of equal ones the last by index, so that the first are left for whole GPUs."""
    fitting = [
        left
        for left in free
        if left.core >= fraction and left.memory >= _fraction_memory(left, fraction, request)
    ]
    sign = -1 if order == SPREAD else 1

    def rank(left: _Free) -> tuple[int, int, int]:
        index = -left.gpu.index if last else left.gpu.index
        return sign * left.core, sign * left.unpromised, index

    return min(fitting, key=rank, default=None)


def _nothing_fits(free: Sequence[_Free], fraction: int, request: Request) -> str:
    if not free:
        return f"no GPU is left beside the whole ones; {fraction} % of another asked"
    best = max(free, key=lambda left: (min(left.core, fraction), left.memory, -left.gpu.index))
    return (
        f"largest free share is {best.core} % and {_gib(best.memory)} on {best.gpu.uuid}; "
        f"{fraction} % and {_gib(_fraction_memory(best, fraction, request))} asked"
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
