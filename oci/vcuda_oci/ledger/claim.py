"""Claim an allocation in the ledger: choose and write under one lock."""

from __future__ import annotations

import time

from ..container.identity import Owner, pod_key
from ..host.host import Host
from ..model import mps
from ..model.allocation import NODE, PLACED, Allocation, GpuShare
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.names import CLAIM_PREFIX
from ..model.policies import MIG, MPS, ROTATE
from ..model.record import Record
from ..model.request import Request
from ..pages import limits
from ..placement import eligible
from ..placement.choose import Chosen, Refused, choose
from ..placement.free import of_other_kind
from ..placement.rules import Rules
from . import events, instance_records, liveness, unhealthy
from .instance_records import Held
from .ledger import Ledger, NoRoom

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from ..model.suspension import Suspension

# A container may go on filling the file system while space is freed; one try in twenty failed.
_TRIES = 40
# The search through the descriptors of all processes can take seconds.
_SEARCH_EACH = 10


class NoPlace(VcudaError):
    """No GPU has room for the request."""


class Claim(Record):
    """An owner's claim to what it requests.

    runtime: the low-level runtime's command line up to the verb. claimant: pid of the process that
    keeps the claim alive until the runtime knows the container. decided: the shares of a placement
    decision; the container gets exactly these GPUs or none. ended: containers of the pod that leave
    their shares to the others when they have ended, as the kubelet counts init containers. made:
    the GPU instance that was created for the container, and all of its MIG device as a share.
    isolation: MPS, or "".
    """

    def __init__(
        self,
        owner: Owner,
        request: Request,
        runtime: list[str],
        claimant: int,
        decided: Sequence[GpuShare] = (),
        ended: Sequence[str] = (),
        made: tuple[Held, GpuShare] | None = None,
        isolation: str = "",
    ) -> None:
        self.isolation = isolation
        self.owner, self.request, self.runtime = owner, request, runtime
        self.claimant, self.decided, self.ended, self.made = claimant, decided, ended, made


def claim(ledger: Ledger, host: Host, wanted: Claim, rules: Rules) -> tuple[Allocation, bool]:
    """The owner's allocation, and whether this claim made it.

    A container that comes back (restart, second claim at the same moment) gets what it had, even on
    an unhealthy GPU: its program must not damage the next GPU too. A drained GPU it loses. When
    nothing fits, the shares of dead containers are released and the choice is made again. When the
    file system is full, space is freed without the lock, and everything starts again.

    Raises VcudaError: refused, with what would fit; or a record is broken, so that the free amounts
    are unknown.
    """
    tries = _TRIES
    while True:
        try:
            return _claim(ledger, host, wanted, rules)
        except NoRoom:
            tries -= 1
            if not tries or not _free_space(ledger, search=tries % _SEARCH_EACH == 0):
                raise


def _free_space(ledger: Ledger, *, search: bool) -> bool:
    return ledger.make_room(search=search) or (not search and ledger.make_room(search=True))


def _claim(ledger: Ledger, host: Host, wanted: Claim, rules: Rules) -> tuple[Allocation, bool]:
    owner = wanted.owner
    if wanted.request.terms.policy == ROTATE and not wanted.runtime:
        what = "policy rotate: several containers may share it, so it cannot leave the GPU for one"
        raise VcudaError(what, owner.key, "use another policy")
    with ledger:
        held = reclaim(ledger, host, wanted, rules)
        if held:
            return held, False
        _release_ended(ledger, owner, wanted.ended)
        if wanted.isolation == MPS and _has_other_layout(ledger.read()[0], rules.partitions):
            _make_room(ledger)  # no dead container keeps its GPU's layout, or its GPU without one
        answer = _place(ledger, host, wanted, rules)
        if isinstance(answer, Refused) and _make_room(ledger):
            answer = _place(ledger, host, wanted, rules)
        if isinstance(answer, Refused) and _may_borrow(wanted):
            answer = _place(ledger, host, wanted, rules, answer)
        if isinstance(answer, Refused):
            raise no_place(wanted, answer)
        allocation = Allocation(
            owner.key,
            answer.shares,
            wanted.request.as_json(),
            owner.container_id,
            wanted.runtime,
            _claimant(wanted.claimant),
            time.time(),
            {**pod_of(owner), **_placed_by(wanted)},
            engine=owner.engine,
            suspension=_begins_off(ledger, host, answer.shares, rules),
            idle_suspend=_idle_suspend(wanted, rules),
            isolation=MIG if wanted.made else wanted.isolation,
        )
        if wanted.isolation == MPS:
            allocation = _partitioned(ledger.read()[0], allocation, rules.partitions)
        if wanted.made:
            instance_records.write(ledger.state_dir, wanted.made[0])
        ledger.write(
            allocation, limits.page_of(allocation, rules.context_bytes, rules.meter_copies)
        )
        return allocation, True


def no_place(wanted: Claim, answer: Refused) -> VcudaError:
    """NoPlace, unless a scheduler has decided: then only it can choose another place."""
    if not wanted.decided:
        return NoPlace(answer.reason, "placement", answer.hint)
    return VcudaError(
        answer.reason,
        f"decision for pod {wanted.owner.namespace}/{wanted.owner.pod_name}",
        "delete the pod if it stays so, and it is scheduled anew",
    )


def reclaim(ledger: Ledger, host: Host, wanted: Claim, rules: Rules) -> Allocation | None:
    """The first half of `claim`: what the owner had and gets again; None: it had no such share.

    Needs the ledger's lock. For a pod's container only the amounts are compared, so `wanted` may be
    the container's own request, before a decision. Raises VcudaError.
    """
    owner = wanted.owner
    known = ledger.get(owner.key)
    if known is None:
        return None
    same = _is_same(known, wanted.request, owner.is_pod) and _all_here(known, host)
    same = same and (owner.is_pod or (known.isolation == MPS) == (wanted.isolation == MPS))
    if liveness.container_lives(known):
        instance = (owner.container_id, wanted.runtime)
        if same and (known.container_id, known.runtime) == instance:
            return known  # a second create: the low-level runtime will refuse it
        raise VcudaError(
            f"container {known.container_id} of '{' '.join(known.runtime)}' lives and "
            "holds its share",
            owner.key,
            f"stop it, or run 'vcuda release {owner.key}' if it is gone",
        )
    if same and not _is_drained(ledger, host, known):
        return _take_over(ledger, host, known, wanted, rules)
    ledger.remove(known.id)
    why = "and its GPU is drained" if same else "asking for something else"
    ledger.record_event(events.RELEASED, known, f"it comes back {why}")
    return None


def _is_drained(ledger: Ledger, host: Host, known: Allocation) -> bool:
    """Whether an ended container had a share of a GPU that is drained: it begins on another one."""
    drained = unhealthy.read_drained(ledger.state_dir)
    gpus = [host.gpu(share.uuid) for share in known.shares] if drained else []
    return any(gpu and (gpu.uuid in drained or gpu.parent in drained) for gpu in gpus)


def _release_ended(ledger: Ledger, owner: Owner, ended: Sequence[str]) -> None:
    for name in ended:
        key = pod_key(owner.pod_uid, name)
        known = ledger.get(key) if key != owner.key else None
        if known and not liveness.container_lives(known):
            ledger.remove(known.id)
            ledger.record_event(events.RELEASED, known, "an init container that has ended")


def _is_same(known: Allocation, request: Request, of_pod: bool) -> bool:
    """Whether the record is of this request. A pod's other words may have changed."""
    now = request.as_json()
    if of_pod:
        return all(known.request.get(key) == now[key] for key in ("core", "memory_bytes", "gpus"))
    return known.request == now


def _place(
    ledger: Ledger, host: Host, wanted: Claim, rules: Rules, refused: Refused | None = None
) -> Chosen | Refused:
    """refused: the answer beside all promises; then it may take the room of suspended ones."""
    if wanted.made:
        return Chosen([wanted.made[1]])
    allocations = ledger.read_all()
    if refused and not any(allocation.lends for allocation in allocations):
        return refused
    taken = [
        share
        for allocation in allocations
        if not (refused and allocation.lends)
        for share in allocation.reserved
    ]
    taken += instance_records.taken(ledger.state_dir, host.gpus, taken)
    barred = _of_others(allocations, wanted, host.gpus, rules.partitions)
    sick = {**barred, **unhealthy.reasons(ledger.state_dir)}
    answer = place(host, taken, wanted.request, rules, sick, wanted.decided)
    if refused:
        from . import rotation  # only where containers rotate

        return rotation.borrowing(answer, host.gpus, refused)
    return answer


def _may_borrow(wanted: Claim) -> bool:
    """Whether the container can leave its GPU for others: no named slice and no claim, which
    several containers may share; not under MPS; not on the GPU that a scheduler has decided for it.
    """
    return bool(wanted.runtime) and not (wanted.decided or wanted.isolation)


def place(
    host: Host,
    taken: Sequence[GpuShare],
    request: Request,
    rules: Rules,
    sick: Mapping[str, str],
    decided: Sequence[GpuShare] = (),
) -> Chosen | Refused:
    """The shares that a new container gets beside `taken`. sick: as unhealthy.reasons. Pure."""
    answer = choose(
        host.gpus,
        taken,
        request,
        rules,
        host.distances,
        sick,
        decided,
    )
    rotates = rules.rotates or request.terms.policy == ROTATE
    if isinstance(answer, Chosen) and (rotates or any(share.rotates for share in taken)):
        from . import rotation  # only where containers rotate

        if rotates:
            return rotation.rotating(answer, host.gpus, taken)
        return rotation.beside_rotating(answer, host.gpus, taken)
    return answer


def _of_others(
    allocations: Sequence[Allocation], wanted: Claim, gpus: Sequence[Gpu], partitions: Sequence[int]
) -> dict[str, str]:
    """GPUs that the container's kind of sharing excludes."""
    under_mps = wanted.isolation == MPS
    found = {}
    for gpu in gpus if under_mps else ():
        held = _under_mps(allocations, gpu.uuid)
        layout = mps.partitions_of(held, partitions)
        core = sum(part.core for part in wanted.request.parts)
        if gpu.mig:
            found[gpu.uuid] = eligible.IS_PART
        elif layout and not mps.free_partition(held, layout, core):
            found[gpu.uuid] = eligible.NO_PARTITION
    return {**found, **of_other_kind(allocations, under_mps=under_mps)}


def _under_mps(allocations: Sequence[Allocation], uuid: str) -> list[Allocation]:
    return [one for one in allocations if one.isolation == MPS and one.shares[0].uuid == uuid]


def _has_other_layout(allocations: Sequence[Allocation], setting: Sequence[int]) -> bool:
    return any(one.isolation == MPS and one.partitions != list(setting) for one in allocations)


def _partitioned(
    others: Sequence[Allocation], allocation: Allocation, setting: Sequence[int]
) -> Allocation:
    """The new allocation, with a static partition of its GPU, if that has such."""
    held, share = _under_mps(others, allocation.shares[0].uuid), allocation.shares[0]
    layout = mps.partitions_of(held, setting)
    free = mps.free_partition(held, layout, share.core_percent)
    return allocation.replaced(partition=free, partitions=list(layout))


def _make_room(ledger: Ledger) -> bool:
    """Release the shares of dead containers and finish interrupted changes; whether any were."""
    from . import resize  # only when nothing fits

    swept = ledger.sweep(liveness.is_alive)
    return bool(resize.finish(ledger)) or bool(swept)


def _all_here(allocation: Allocation, host: Host) -> bool:
    """Whether its GPUs are still in the machine, and have what it was promised of each."""
    gpus = [(share, host.gpu(share.uuid)) for share in allocation.shares]
    return all(gpu and share.memory_bytes <= gpu.memory_bytes for share, gpu in gpus)


def _take_over(
    ledger: Ledger, host: Host, known: Allocation, wanted: Claim, rules: Rules
) -> Allocation:
    """The allocation of an ended container, for its next instance."""
    owner = wanted.owner
    # A change by `vcuda limit` stays, also one that was cut short.
    shares = known.becoming or known.shares
    taken = known.replaced(
        container_id=owner.container_id,
        runtime=wanted.runtime,
        claimant=_claimant(wanted.claimant),
        pod={**known.pod, **pod_of(owner)},
        engine=owner.engine,
        idle_suspend=_idle_suspend(wanted, rules),
        shares=shares,
        becoming=None,
        suspension=_begins_off_again(ledger, host, known, shares, rules),
        nodes_left=[],
    )
    # Fresh pages: the usage of the last instance's processes has ended with them.
    ledger.write(taken, limits.page_of(taken, rules.context_bytes, rules.meter_copies))
    return taken


def _begins_off(
    ledger: Ledger, host: Host, shares: list[GpuShare], rules: Rules
) -> Suspension | None:
    """None: the container begins on its GPUs, as every one that does not rotate."""
    if not any(share.rotates for share in shares):
        return None
    from . import rotation  # only where containers rotate

    return rotation.begin(ledger, host, shares, rules)


def _begins_off_again(
    ledger: Ledger, host: Host, known: Allocation, shares: list[GpuShare], rules: Rules
) -> Suspension | None:
    """The same for the next instance of a container: off the GPUs if the last one ended there and
    rotates, or others have its room.
    """
    if known.resident == known.shares:
        return None
    from . import rotation  # only where containers were suspended

    if known.rotates:
        return rotation.off()
    return rotation.begin(ledger, host, shares, rules, known.id)


def _idle_suspend(wanted: Claim, rules: Rules) -> int:
    """A claim's containers write one page, so it has only the idle time that it names itself."""
    named = wanted.request.terms.idle_suspend
    if named is None and wanted.owner.key.startswith(CLAIM_PREFIX):
        return 0
    return rules.idle_suspend if named is None else named


def _claimant(pid: int) -> list[int]:
    return [pid, liveness.start_time(pid)]


def _placed_by(wanted: Claim) -> dict[str, str]:
    """The record's field that lets a pod's container move; {}: a scheduler decided on its GPU."""
    return {PLACED: NODE} if wanted.owner.is_pod and not wanted.decided else {}


def pod_of(owner: Owner) -> dict[str, str]:
    """The record's fields of the pod; empty outside Kubernetes."""
    if not owner.is_pod:
        return {}
    pod = {
        "uid": owner.pod_uid,
        "namespace": owner.namespace,
        "name": owner.pod_name,
        "container": owner.container_name,
        "sandbox_id": owner.sandbox_id,
    }
    return {**pod, "sandbox_file": owner.sandbox_file} if owner.sandbox_file else pod
