"""From request and owner to an allocation in the ledger: choose and write under one lock."""

from __future__ import annotations

import os
import time

from . import liveness, names, pages
from .allocation import Allocation
from .errors import VcudaError
from .ledger import broken_record
from .placement import Chosen, Refused, choose

TYPE_CHECKING = False
if TYPE_CHECKING:
    from .host import Host
    from .identity import Owner
    from .ledger import Ledger
    from .request import Request

PPM_PER_PERCENT = 10_000
FIXED_POLICY = 0  # VCUDA_POLICY_FIXED


def claim(
    ledger: Ledger, host: Host, owner: Owner, request: Request, placement: str, runtime: list[str]
) -> tuple[Allocation, bool]:
    """The owner's allocation, and whether this claim made it.

    A container that comes back (restart, second claim at the same moment) gets what it had. When
    nothing fits, what dead containers left behind is swept and the choice made again. Raises
    VcudaError: refused, with what would fit; or a record is broken, so that nobody knows what does.
    """
    with ledger:
        known = ledger.get(owner.key)
        if known and known.request == request.as_json() and _all_here(known, host):
            return _take_over(ledger, known, owner, runtime), False
        if known and liveness.is_alive(known):
            raise VcudaError(
                "this container lives already and holds another share",
                owner.key,
                f"stop it, or run 'vcuda release {owner.key}' if it is gone",
            )
        if known:
            ledger.remove(known.id)
        answer = _place(ledger, host, request, placement)
        if isinstance(answer, Refused) and ledger.sweep(liveness.is_alive):
            answer = _place(ledger, host, request, placement)
        if isinstance(answer, Refused):
            raise VcudaError(answer.reason, "placement", "ask for less, or free a share")
        allocation = Allocation(
            owner.key,
            answer.shares,
            request.as_json(),
            owner.container_id,
            runtime,
            _claimant(),
            time.time(),
            _pod(owner),
        )
        ledger.write(allocation, limits_page(allocation))
        return allocation, True


def limits_page(allocation: Allocation) -> bytes:
    """What the shim is told of the allocation."""
    return pages.limits_page(
        [
            pages.GpuLimits(
                share.uuid,
                share.memory_bytes,
                share.core_percent,
                share.core_percent,
                FIXED_POLICY,
                share.core_percent * PPM_PER_PERCENT,
                0,
            )
            for share in allocation.shares
        ],
        names.GUEST_DRIVER,
    )


def _place(ledger: Ledger, host: Host, request: Request, placement: str) -> Chosen | Refused:
    whole, broken = ledger.read()
    if broken:
        raise broken_record(*broken[0])
    taken = [share for allocation in whole for share in allocation.shares]
    return choose(host.gpus, taken, request, placement)


def _all_here(allocation: Allocation, host: Host) -> bool:
    """Whether its GPUs are still in the machine."""
    return all(host.gpu(share.uuid) for share in allocation.shares)


def _take_over(ledger: Ledger, known: Allocation, owner: Owner, runtime: list[str]) -> Allocation:
    """The known allocation for this instance of its container."""
    again = known.container_id == owner.container_id and known.runtime == runtime
    if not owner.is_pod and known.runtime != runtime and liveness.is_alive(known):
        raise VcudaError(
            "a container of this id lives under another runtime root",
            owner.key,
            "give this one another id",
        )
    if again and liveness.is_alive(known):
        return known  # a second create: the low-level runtime will refuse it, the first lives on
    known.container_id, known.runtime, known.claimant = owner.container_id, runtime, _claimant()
    known.pod = _pod(owner)
    # Fresh pages: what the last instance's processes used is no more.
    ledger.write(known, limits_page(known))
    return known


def _claimant() -> list[int]:
    pid = os.getpid()
    return [pid, liveness.start_time(pid)]


def _pod(owner: Owner) -> dict[str, str]:
    if not owner.is_pod:
        return {}
    return {
        "uid": owner.pod_uid,
        "namespace": owner.namespace,
        "name": owner.pod_name,
        "container": owner.container_name,
        "sandbox_id": owner.sandbox_id,
    }
