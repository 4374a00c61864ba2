"""Claim an allocation with a GPU instance that is created for this container."""

from __future__ import annotations

from ..host.host import Host
from ..ledger import claim, instance_records, liveness, unhealthy
from ..ledger.claim import Claim
from ..ledger.instance_records import Held
from ..ledger.ledger import Ledger
from ..model.allocation import Allocation, GpuShare
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..placement.eligible import Refused, begun_by, closed, refusal
from ..placement.mig import Place
from ..placement.rules import Rules
from . import instances

_HINT = "ask for less, or use isolation turns"


def claim_instance(
    ledger: Ledger, host: Host, wanted: Claim, rules: Rules, place: Place | None = None
) -> tuple[Allocation, bool]:
    """As `claim.claim`, with a GPU instance of the container's own. place: where a scheduler
    decided it; None: where it leaves most room.

    Raises VcudaError: refused, or the driver refuses; nothing is left of a refused instance.
    """
    with ledger:
        held = claim.reclaim(ledger, host, wanted, rules)
    if held:
        return held, False
    with instances.lock(ledger):
        with ledger:  # its other claim may have had the lock before
            held = claim.reclaim(ledger, host, wanted, rules)
        if held:
            return held, False
        instances.sweep(ledger, host.library)
        if any(one.id == wanted.owner.key for one in instance_records.stale(ledger)):
            raise VcudaError(
                "the GPU instance that it had is still in use",
                wanted.owner.key,
                "end the processes that use it: see 'nvidia-smi'",
            )
        made = _create(ledger, host, wanted, place)
        if isinstance(made, Refused):
            with ledger:
                ledger.sweep(liveness.is_alive)
            if instances.sweep(ledger, host.library):
                made = _create(ledger, host, wanted, place)
        if isinstance(made, Refused):
            raise claim.no_place(wanted, made)
        try:
            return claim.claim(ledger, host, wanted.replaced(made=made), rules)
        except BaseException:
            instances.sweep(ledger, host.library)  # no allocation names it
            raise


def _create(
    ledger: Ledger, host: Host, wanted: Claim, place: Place | None
) -> tuple[Held, GpuShare] | Refused:
    request = wanted.request
    gpus = _usable(ledger, host, wanted)
    if isinstance(gpus, Refused):
        return gpus
    if len(request.parts) != 1 or not 1 <= request.core <= 100:
        return Refused("a container uses one GPU instance; it asks for more than a GPU", _HINT)
    (part,) = request.parts
    memory = part.memory_bytes or 0
    if part.memory_percent is not None:
        memory = max(gpu.memory_bytes for gpu in gpus) * part.memory_percent // 100
    uuids = [gpu.uuid for gpu in gpus]
    return instances.create(ledger, host, wanted.owner.key, part.core, memory, uuids, place)


def _usable(ledger: Ledger, host: Host, wanted: Claim) -> list[Gpu] | Refused:
    """The healthy GPUs in MIG mode that the request may use."""
    request = wanted.request
    divided = [gpu for gpu in host.gpus if gpu.divided]
    if wanted.decided:
        (share, *_) = wanted.decided
        divided = [gpu for gpu in divided if share.uuid in (gpu.uuid, gpu.name)]
        if not divided:
            return Refused(f"{share.uuid} was decided, and is not in MIG mode here")
    if request.gpus:
        uuids = [gpu.uuid for gpu in divided]
        named = {uuid for name in request.gpus for uuid in begun_by(name, uuids)}
        divided = [gpu for gpu in divided if gpu.uuid in named or gpu.name in request.gpus]
    sick = unhealthy.reasons(ledger.state_dir)
    healthy = [gpu for gpu in divided if gpu.uuid not in sick]
    if divided and not healthy:
        uuid = divided[0].uuid
        return Refused(*refusal({uuid: closed(uuid, sick[uuid])}))
    if not healthy:
        among = f" among {', '.join(request.gpus)}" if request.gpus else ""
        hint = "see 'vcuda gpus'; set MIG mode by 'nvidia-smi -mig 1', or use isolation turns"
        return Refused(f"no GPU in MIG mode{among}", hint)
    return healthy
