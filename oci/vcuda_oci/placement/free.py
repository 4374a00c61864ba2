"""What is left of each GPU: pure."""

from __future__ import annotations

from ..model.allocation import Allocation, GpuShare
from ..model.gpu import Gpu
from ..model.policies import FIXED, MPS, ROTATE, WEIGHTED, Terms
from ..model.sizes import gib
from .eligible import MPS_THERE, TURNS_THERE, Refused, closed
from .rules import Rules

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence


class Free:
    """What is left of one GPU.

    at: its position among the GPUs. core: percent. unpromised: bytes that the rules still allow.
    memory: the most bytes that one container can be promised; never more than the GPU has.
    """

    def __init__(self, gpu: Gpu, at: int, core: int, memory: int, rules: Rules) -> None:
        """core, memory: percent and bytes that others hold."""
        self.gpu, self.at = gpu, at
        self.unpromised = rules.promised(gpu) - memory
        # More than all may be promised: suspended containers lend their room, and overcommit may
        # have been lowered since.
        self.core = max(0, 100 - core)
        self.memory = max(0, min(self.unpromised, gpu.memory_bytes))
        self.untouched = not core


def free_at(
    gpus: Sequence[Gpu], positions: Sequence[int], taken: Sequence[GpuShare], rules: Rules
) -> list[Free]:
    """What is left of the GPUs at these positions."""
    core = dict.fromkeys([gpu.uuid for gpu in gpus], 0)
    memory = dict(core)
    for share in taken:
        uuid = share.uuid
        if uuid in core:
            core[uuid] += share.core_percent
            memory[uuid] += share.memory_bytes
    return [
        Free(gpu, at, core[gpu.uuid], memory[gpu.uuid], rules)
        for at, gpu in [(at, gpus[at]) for at in positions]
    ]


def free_on(gpu: Gpu, taken: Sequence[GpuShare], rules: Rules) -> Free:
    """What is left of `gpu`."""
    return free_at([gpu], [0], taken, rules)[0]


def no_room(
    shares: Sequence[GpuShare], gpus: Sequence[Gpu], taken: Sequence[GpuShare], rules: Rules
) -> Refused | None:
    """Why these very shares do not fit beside `taken`; None: they do.

    For a container that comes back to the GPUs that it had.
    """
    for share, left in _without_room(shares, gpus, taken, rules):
        if left is None:
            return Refused(f"{share.uuid} is not in this machine", "see 'vcuda gpus'")
        return Refused(
            f"{left.core} % and {gib(left.memory)} of {share.uuid} are free; "
            f"{share.core_percent} % and {gib(share.memory_bytes)} are needed",
            "end or suspend another container",
        )
    return None


def full(
    shares: Sequence[GpuShare], gpus: Sequence[Gpu], taken: Sequence[GpuShare], rules: Rules
) -> set[str]:
    """The UUIDs of the GPUs on which these very shares do not fit beside `taken`, with memory
    promised once; a GPU that is not there is full.
    """
    return {share.uuid for share, _ in _without_room(shares, gpus, taken, rules.once())}


def _without_room(
    shares: Sequence[GpuShare], gpus: Sequence[Gpu], taken: Sequence[GpuShare], rules: Rules
) -> Iterator[tuple[GpuShare, Free | None]]:
    """The shares that do not fit, with what is left of their GPU; None: it is not there."""
    for share in shares:
        positions = [at for at, gpu in enumerate(gpus) if gpu.uuid == share.uuid]
        if not positions:
            yield share, None
            continue
        (left,) = free_at(gpus, positions, taken, rules if share.managed else rules.once())
        if share.core_percent > left.core or share.memory_bytes > left.memory:
            yield share, left


def share_of(uuid: str, memory: int, core: int, terms: Terms, managed: bool) -> GpuShare:
    """A share under a policy; neither policy nor latency apply to a whole GPU."""
    if core == 100:
        return GpuShare(uuid, memory, core, managed=managed)
    if terms.policy in (FIXED, ROTATE):
        return GpuShare(uuid, memory, core, managed=managed, latency=terms.latency)
    weight = terms.weight if terms.policy == WEIGHTED else core
    return GpuShare(
        uuid,
        memory,
        core,
        terms.policy,
        terms.core_limit,
        weight,
        terms.priority,
        managed,
        terms.latency,
    )


def resized(
    share: GpuShare,
    gpu: Gpu,
    beside: Sequence[GpuShare],
    core: int,
    memory_bytes: int,
    terms: Terms,
    rules: Rules,
) -> GpuShare | Refused:
    """`share` of `gpu` with other figures; `beside`: the shares of others.

    It may keep what it has; for more, the rules of placement apply. Only managed memory is
    overcommitted, because the driver can move nothing else, and that of containers that rotate.
    """
    often = share.managed or share.rotates
    left = free_on(gpu, beside, rules if often else rules.once())
    most_core = max(left.core, share.core_percent)
    most_memory = max(left.memory, share.memory_bytes)
    if core > most_core or memory_bytes > most_memory:
        return Refused(
            f"at most {most_core} % and {gib(most_memory)} of {gpu.uuid} can be its own; "
            f"{core} % and {gib(memory_bytes)} asked"
        )
    answer = share_of(gpu.uuid, memory_bytes, core, terms, share.managed)
    return answer.replaced(rotates=share.rotates)


def beside_mps(shares: Sequence[GpuShare], others: Sequence[Allocation]) -> Refused | None:
    """Why a container that takes turns cannot come back to these shares: another one is under MPS
    on such a GPU. None: it can.
    """
    there = of_other_kind(others, under_mps=False)
    for share in shares:
        if share.uuid in there:
            hint = "end the containers under MPS there, or use another GPU"
            return Refused(closed(share.uuid, there[share.uuid]), hint)
    return None


def of_other_kind(others: Sequence[Allocation], *, under_mps: bool) -> dict[str, str]:
    """Why GPUs cannot get a container under MPS, or else one in turns, by UUID: the driver would
    give the MPS server's clients a time slice beside each turn."""
    why = TURNS_THERE if under_mps else MPS_THERE
    return {
        share.uuid: why
        for one in others
        if (one.isolation == MPS) != under_mps
        for share in one.reserved
    }
