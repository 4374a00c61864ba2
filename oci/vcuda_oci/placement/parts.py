"""Parts of several GPUs for one container, each of another GPU, as HAMi's resources say it: pure.

The scheduler extender places them so before the pod has a node, and the claim where nobody did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from ..container.request import Request
from ..model.allocation import GpuShare
from ..model.amounts import sizes
from ..model.policies import Terms
from ..system.settings_file import BINPACK
from .choose import Chosen, Refused, choose
from .decided import added, found_of

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from ..model.amounts import Part
    from ..model.gpu import Gpu

    Between = Callable[[Sequence[Gpu]], Sequence[Sequence[int]] | None]

_NO_GPU = "no GPU is left beside the container's others"
_NOT_KNOWN = "how much of each GPU is asked for is not known"
_MIG = "MIG devices are used one at a time, and parts of several GPUs are asked for"


def memory_of(part: Part, core: int, gpu: Gpu) -> int:
    """Bytes of `gpu` that a share of it with `core` percent comes to."""
    if core == 100:
        return gpu.memory_bytes
    if part.memory_bytes is not None:
        return part.memory_bytes
    percent = core if part.memory_percent is None else part.memory_percent
    return gpu.memory_bytes * percent // 100


def place(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    parts: Sequence[Part],
    terms: Terms | None,
    order: str,
    overcommit: float = 1,
    between: Between = lambda gpus: None,
    unhealthy: Mapping[str, str] | None = None,
) -> Chosen | Refused:
    """A share for each part, in their order. between: the distances of GPUs, if they are told."""
    if not parts:  # the number of GPUs alone would be whole ones
        return Refused(_NOT_KNOWN)
    usable = [gpu for gpu in gpus if gpu.mig is None] if len(parts) > 1 else gpus
    if gpus and not usable:
        return Refused(_MIG)
    found: list[GpuShare] = []
    for part in parts:
        used = {share.uuid for share in found}
        others = [gpu for gpu in usable if gpu.uuid not in used] if used else usable
        if used and not others:
            return Refused(_NO_GPU)
        answer = _place(others, taken, part, terms, order, overcommit, between, unhealthy)
        if isinstance(answer, Refused):
            return answer
        found += answer.shares
    return Chosen(found)


def place_decided(
    decided: Sequence[GpuShare],
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    parts: Sequence[Part],
    terms: Terms | None,
    overcommit: float = 1,
    unhealthy: Mapping[str, str] | None = None,
) -> Chosen | Refused:
    """As `decided.place`: on exactly these GPUs, and a decision of other amounts is none."""
    wanted = sizes(parts)
    cores, asked = [share.core_percent for share in decided], [core for core, _ in wanted]
    if cores != asked:
        return Refused(f"{added(cores)} % was decided; {added(asked)} % is asked")
    there = found_of(decided, gpus)
    if isinstance(there, Refused):
        return there
    found: list[GpuShare] = []
    for share, gpu, (core, part) in zip(decided, there, wanted):
        memory = None if core == 100 else memory_of(part, core, gpu)
        if memory is not None and share.memory_bytes != memory:
            return Refused(f"{share.memory_bytes} bytes were decided; {memory} are asked")
        request = Request(core, memory, (), terms)
        answer = choose([gpu], taken, request, BINPACK, overcommit, None, unhealthy)
        if isinstance(answer, Refused):
            return Refused(f"{gpu.uuid} was decided; {answer.reason}")
        found += answer.shares
    return Chosen(found)


def _place(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    part: Part,
    terms: Terms | None,
    order: str,
    overcommit: float,
    between: Between,
    unhealthy: Mapping[str, str] | None,
) -> Chosen | Refused:
    def chosen(those: Sequence[Gpu], memory: int | None) -> Chosen | Refused:
        request = Request(part.core, memory, (), terms)
        return choose(those, taken, request, order, overcommit, between(those), unhealthy)

    if part.memory_percent is None:
        return chosen(gpus, part.memory_bytes)
    # A percent is another size on each size of GPU; the smallest that will do.
    refused: Refused | None = None
    for size in sorted({gpu.memory_bytes for gpu in gpus}):
        same = [gpu for gpu in gpus if gpu.memory_bytes == size]
        answer = chosen(same, size * part.memory_percent // 100)
        if isinstance(answer, Chosen):
            return answer
        refused = refused or answer
    return refused or Refused(_NO_GPU)
