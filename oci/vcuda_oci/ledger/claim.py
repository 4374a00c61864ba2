"""From request and owner to an allocation in the ledger: choose and write under one lock."""

from __future__ import annotations

import time

from ..container.identity import pod_key
from ..model import topology
from ..model.allocation import Allocation
from ..model.errors import VcudaError
from ..pages import limits
from ..placement.choose import Chosen, Refused, choose
from ..system.settings_file import BINPACK
from . import events, liveness, unhealthy
from .ledger import NoRoom, broken_record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..container.identity import Owner
    from ..container.request import Request
    from ..host.host import Host
    from ..model.allocation import GpuShare
    from ..model.gpu import Gpu
    from .ledger import Ledger

# Who fills the file system goes on while room is made. Seen: one try in twenty came too late.
_TRIES = 40
# The search through the descriptors of all processes can take seconds.
_SEARCH_EACH = 10


class Rules:
    """What the settings say about every claim.

    placement: of config.PLACEMENTS. overcommit: how many times a GPU's memory is promised.
    context_bytes: what a process's context on a GPU counts against its container's share.
    meter_copies: whether copies within a GPU and memsets count against compute.
    """

    def __init__(
        self,
        placement: str = BINPACK,
        overcommit: float = 1,
        context_bytes: int = 0,
        meter_copies: bool = False,
    ) -> None:
        self.placement, self.overcommit = placement, overcommit
        self.context_bytes, self.meter_copies = context_bytes, meter_copies


def claim(
    ledger: Ledger,
    host: Host,
    owner: Owner,
    request: Request,
    runtime: list[str],
    claimant: int,
    rules: Rules,
    decided: Sequence[GpuShare] = (),
    ended: Sequence[str] = (),
) -> tuple[Allocation, bool]:
    """The owner's allocation, and whether this claim made it.

    claimant: the process that proves it wanted until the runtime knows the container. decided:
    where a scheduler wants it, and then it is there or nowhere. ended: the pod's containers whose
    shares the others use once they have ended, as the kubelet counts init containers.

    A container that comes back (restart, second claim at the same moment) gets what it had, on a
    GPU that is unhealthy too: what its program does to one GPU it shall not do to the next. When
    nothing fits, what dead containers left behind is swept and the choice made again. Raises
    VcudaError: refused, with what would fit; or a record is broken, so that nobody knows what does.

    Where the file system is full, room is made without the lock, and then all begins again.
    """
    tries = _TRIES
    while True:
        try:
            return _claim(ledger, host, owner, request, runtime, claimant, rules, decided, ended)
        except NoRoom:
            tries -= 1
            if not tries or not _free_space(ledger, tries % _SEARCH_EACH == 0):
                raise


def _free_space(ledger: Ledger, search: bool) -> bool:
    return ledger.make_room(search) or (not search and ledger.make_room(True))


def _claim(
    ledger: Ledger,
    host: Host,
    owner: Owner,
    request: Request,
    runtime: list[str],
    claimant: int,
    rules: Rules,
    decided: Sequence[GpuShare],
    ended: Sequence[str],
) -> tuple[Allocation, bool]:
    with ledger:
        held = reclaim(ledger, host, owner, request, runtime, claimant, rules)
        if held:
            return held, False
        _release_ended(ledger, owner, ended)
        answer = _place(ledger, host, request, rules, decided)
        if isinstance(answer, Refused) and _make_room(ledger):
            answer = _place(ledger, host, request, rules, decided)
        if isinstance(answer, Refused) and decided:
            raise VcudaError(
                answer.reason,
                f"decision for pod {owner.namespace}/{owner.pod_name}",
                "delete the pod if it stays so, and it is scheduled anew",
            )
        if isinstance(answer, Refused):
            raise VcudaError(answer.reason, "placement", answer.mend)
        allocation = Allocation(
            owner.key,
            answer.shares,
            request.as_json(),
            owner.container_id,
            runtime,
            _claimant(claimant),
            time.time(),
            pod_of(owner),
            engine=owner.engine,
        )
        ledger.write(
            allocation, limits.page_of(allocation, rules.context_bytes, rules.meter_copies)
        )
        return allocation, True


def reclaim(
    ledger: Ledger,
    host: Host,
    owner: Owner,
    request: Request,
    runtime: list[str],
    claimant: int,
    rules: Rules,
) -> Allocation | None:
    """The first half of `claim`: what the owner had and gets again; None: it had no such share.

    Needs the ledger's lock. Of a pod's container the amounts alone are compared, so `request` may
    be what it says by itself, before anybody's decision. Raises VcudaError.
    """
    known = ledger.get(owner.key)
    if known is None:
        return None
    same = _asked_the_same(known, request, owner.is_pod) and _all_here(known, host)
    if liveness.container_lives(known):
        instance = (owner.container_id, runtime)
        if same and (known.container_id, known.runtime) == instance:
            return known  # a second create: the low-level runtime will refuse it
        raise VcudaError(
            f"container {known.container_id} of '{' '.join(known.runtime)}' lives and "
            "holds its share",
            owner.key,
            f"stop it, or run 'vcuda release {owner.key}' if it is gone",
        )
    if same:
        return _take_over(ledger, known, owner, runtime, claimant, rules)
    ledger.remove(known.id)
    ledger.tell(events.RELEASED, known, "it comes back asking for something else")
    return None


def _release_ended(ledger: Ledger, owner: Owner, ended: Sequence[str]) -> None:
    for name in ended:
        key = pod_key(owner.pod_uid, name)
        known = ledger.get(key) if key != owner.key else None
        if known and not liveness.container_lives(known):
            ledger.remove(known.id)
            ledger.tell(events.RELEASED, known, "an init container that has ended")


def _asked_the_same(known: Allocation, request: Request, of_pod: bool) -> bool:
    """A pod's container keeps its policy and place too, whatever its pod says of them meanwhile."""
    now = request.as_json()
    if of_pod:
        return all(known.request.get(key) == now[key] for key in ("core", "memory_bytes", "gpus"))
    return known.request == now


def _place(
    ledger: Ledger, host: Host, request: Request, rules: Rules, decided: Sequence[GpuShare]
) -> Chosen | Refused:
    whole, broken = ledger.read()
    if broken:
        raise broken_record(*broken[0])
    taken = [share for allocation in whole for share in allocation.shares]
    order, overcommit = rules.placement, rules.overcommit
    sick = unhealthy.reasons(ledger.state_dir)
    if decided:
        from ..placement import decided as decisions  # no other claim needs it

        return decisions.place(decided, host.gpus, taken, request, overcommit, sick)
    if request.parts is not None:
        from ..placement import parts  # no other claim needs it

        order = request.placement or order

        def between(gpus: Sequence[Gpu]) -> list[list[int]] | None:
            return topology.between(gpus, host.gpus, host.distances)

        words = (request.terms, order, overcommit, between, sick)
        return parts.place(host.gpus, taken, request.parts, *words)
    return choose(host.gpus, taken, request, order, overcommit, host.distances, sick)


def _make_room(ledger: Ledger) -> bool:
    """Release what is dead and end what was cut short; whether anything was."""
    from . import resize  # whom there is room for needs none of it

    swept = ledger.sweep(liveness.is_alive)
    return bool(resize.finish(ledger)) or bool(swept)


def _all_here(allocation: Allocation, host: Host) -> bool:
    """Whether its GPUs are still in the machine."""
    return all(host.gpu(share.uuid) for share in allocation.shares)


def _take_over(
    ledger: Ledger,
    known: Allocation,
    owner: Owner,
    runtime: list[str],
    claimant: int,
    rules: Rules,
) -> Allocation:
    """The allocation of a container that is gone, for its next instance."""
    known.container_id, known.runtime = owner.container_id, runtime
    known.claimant = _claimant(claimant)
    known.pod, known.engine = pod_of(owner), owner.engine
    # What `vcuda limit` made of it stays, and what that was about to make.
    known.shares, known.becoming = known.becoming or known.shares, None
    # Fresh pages: what the last instance's processes used is no more.
    ledger.write(known, limits.page_of(known, rules.context_bytes, rules.meter_copies))
    return known


def _claimant(pid: int) -> list[int]:
    return [pid, liveness.start_time(pid)]


def pod_of(owner: Owner) -> dict[str, str]:
    """What the record says of it; empty outside Kubernetes."""
    if not owner.is_pod:
        return {}
    return {
        "uid": owner.pod_uid,
        "namespace": owner.namespace,
        "name": owner.pod_name,
        "container": owner.container_name,
        "sandbox_id": owner.sandbox_id,
    }
