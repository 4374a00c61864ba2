"""Parts of several GPUs for one container, each of another GPU, as HAMi's resources say it: pure.

The scheduler extender places them so before the pod has a node, and the claim where nobody did.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from .allocation import GpuShare
from .config import BINPACK
from .decided import added, found_of
from .placement import Chosen, Refused, choose
from .policies import Terms
from .request import Request

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from .placement import Gpu

    Between = Callable[[Sequence[Gpu]], Sequence[Sequence[int]] | None]

_NO_GPU = "no GPU is left beside the container's others"
_NOT_KNOWN = "how much of each GPU is asked for is not known"
_MIG = "MIG devices are used one at a time, and parts of several GPUs are asked for"


class Part(NamedTuple):
    """What goes to `placement.choose` at once. core: percent; above 99 whole GPUs come first.

    memory_bytes, memory_percent: of the part below a whole GPU; both None: as much as of compute.
    """

    core: int
    memory_bytes: int | None = None
    memory_percent: int | None = None


class Amounts(NamedTuple):
    """What a container asks for of each GPU that it was given. any_core: no compute was named, so
    the least is reserved and the rest is what others leave."""

    parts: tuple[Part, ...]
    any_core: bool = False

    @property
    def gpus(self) -> int:
        return len(sizes(self.parts))

    def as_json(self) -> dict[str, Any]:
        return {"parts": [list(part) for part in self.parts], "any_core": self.any_core}


def parse(tree: Any) -> Amounts:
    """What `as_json` said. Raises ValueError: anything else."""
    listed: Any = tree.get("parts") if isinstance(tree, dict) else None
    any_core: Any = tree.get("any_core") if isinstance(tree, dict) else None
    if not (isinstance(listed, list) and 1 <= len(listed) <= 64 and type(any_core) is bool):
        raise ValueError("not amounts of GPUs")
    for part in listed:
        right = (
            isinstance(part, list)
            and len(part) == 3
            and all(number is None or (type(number) is int and number > 0) for number in part)
            and part[0] is not None
            and part[0] <= 6400
            and (part[1] or 1) < 1 << 60
            and (part[2] or 1) <= 100
        )
        if not right:
            raise ValueError("a part of a GPU that makes no sense")
    return Amounts(tuple(Part(*part) for part in listed), any_core)


def sizes(parts: Sequence[Part]) -> list[tuple[int, Part]]:
    """The shares that the parts come to: core percent, and of which part."""
    found = []
    for part in parts:
        whole, fraction = divmod(part.core, 100)
        found += [(100, part)] * whole + ([(fraction, part)] if fraction else [])
    return found


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
