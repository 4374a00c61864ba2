"""Containers that take turns on a GPU because together they have more memory than it."""

from __future__ import annotations

import time

from ..host.host import Host
from ..model import suspension
from ..model.allocation import Allocation, GpuShare
from ..model.gpu import Gpu
from ..model.sizes import gib
from ..model.suspension import Suspension
from ..placement.choose import Chosen, Refused
from ..placement.free import beside_mps, no_room
from ..placement.rules import Rules
from .ledger import Ledger

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def rotating(chosen: Chosen, gpus: Sequence[Gpu], taken: Sequence[GpuShare]) -> Chosen | Refused:
    """The shares of fractions, which overcommit made managed, as shares that rotate instead.

    Refused: beside shares that never leave the GPU there would not be room for it. taken: the
    shares of others.
    """
    shares = [
        share.replaced(managed=False, rotates=True) if share.managed else share
        for share in chosen.shares
    ]
    return beside_rotating(Chosen(shares), gpus, taken)


def beside_rotating(
    chosen: Chosen, gpus: Sequence[Gpu], taken: Sequence[GpuShare]
) -> Chosen | Refused:
    """`chosen`, with managed memory that never leaves the GPU; Refused: a container that rotates
    there would never have room again.
    """
    for share in chosen.shares:
        if refused := refusal(share, gpus, taken):
            return refused
    return chosen


def refusal(share: GpuShare, gpus: Sequence[Gpu], taken: Sequence[GpuShare]) -> Refused | None:
    """Why a share that rotates, or one of managed memory, would leave one that rotates without room
    for ever; None: it does not. taken: the shares of others.
    """
    whole = next(gpu.memory_bytes for gpu in gpus if gpu.uuid == share.uuid)
    here = [one for one in taken if one.uuid == share.uuid]
    left = whole - sum([one.memory_bytes for one in here if not one.rotates])
    asked = f"{gib(share.memory_bytes)} asked"
    if share.rotates and share.memory_bytes > left:
        return Refused(f"{gib(max(left, 0))} of {share.uuid} rotate; {asked}")
    largest = max([one.memory_bytes for one in here if one.rotates], default=0)
    if share.managed and largest and share.memory_bytes > left - largest:
        what = f"{gib(max(left - largest, 0))} of {share.uuid} can be managed beside containers"
        return Refused(f"{what} that rotate; {asked}", "use policy rotate")
    return None


def borrowing(answer: Chosen | Refused, gpus: Sequence[Gpu], refused: Refused) -> Chosen | Refused:
    """The shares of a container that takes the room of suspended ones: it leaves when they come
    back. answer: beside those at work. refused: beside all promises.
    """
    if isinstance(answer, Refused):
        return answer
    parts = [gpu.uuid for gpu in gpus if gpu.mig is not None]
    # The driver can take neither off the GPU.
    if any(share.managed or share.uuid in parts for share in answer.shares):
        return refused
    return Chosen([share.replaced(rotates=True) for share in answer.shares])


def begin(
    ledger: Ledger, host: Host, shares: list[GpuShare], rules: Rules, id: str = ""
) -> Suspension | None:
    """Where a container that may begin off its GPUs begins: on them (None), or off them, because
    there is no room, or because others wait for room that come before it. id: of its own record,
    if it has one.

    Needs the ledger's lock. Raises VcudaError: a record is broken.
    """
    others = [allocation for allocation in ledger.read_all() if allocation.id != id]
    rotates = any(share.rotates for share in shares)
    there = [
        share
        for one in others
        for share in (one.shares if _comes_before(one, rotates=rotates) else one.resident)
    ]
    full = beside_mps(shares, others) or no_room(shares, host.gpus, there, rules.once())
    return off() if full else None


def _comes_before(one: Allocation, *, rotates: bool) -> bool:
    """Whether `one` waits for its own GPUs, and a new container comes after it. rotates: whether
    the new container rotates."""
    held = one.suspension
    waits = held is not None and held.step == suspension.WAITING and not held.moves
    return waits and (rotates or not one.rotates)


def off() -> Suspension:
    """A container without processes yet: it asks for its GPUs by its first call."""
    return Suspension(suspension.SUSPENDED, suspension.BY_ROTATION, time.time(), {})
