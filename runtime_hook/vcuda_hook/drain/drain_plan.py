"""What a drain does with each container on a GPU: pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.placement.rearrange import emptying
from vcuda_oci.placement.rules import Rules

from .survey import Survey, Why

MOVE, SUSPEND, STAY, ASLEEP = "move", "suspend", "stay", "suspended"
_OF_POD = "delete the pod, and it is scheduled anew; or suspend the container"


class Step(NamedTuple):
    """What happens to one container. action: of the four above. bytes: what it holds.

    target: UUID of the GPU that it is moved to, or "". reason, hint: why it is not moved, or stays.
    """

    id: str
    action: str
    bytes: int
    target: str = ""
    reason: str = ""
    hint: str = ""


def plan(
    facts: Host,
    uuid: str,
    seen: Survey,
    rules: Rules,
    host_bytes: int,
    failed: Mapping[tuple[str, str], Why],
) -> list[Step]:
    """What a drain does with each container on the GPU: pure.

    host_bytes: what suspended containers may still keep in the host's memory. failed: what has
    been tried, by id and action.
    """
    parts = {gpu.uuid for gpu in facts.gpus if uuid in (gpu.uuid, gpu.parent)}
    mine = [one for one in seen.found if _is_on(one.record, parts)]
    for at, one in enumerate(mine):
        why = failed.get((one.record.id, MOVE))
        mine[at] = one._replace(to=(), unmoved=why) if why else one
    movable = [one for one in mine if one.to]
    wanted = [one.tenant for one in movable]
    moves = emptying(facts.gpus, seen.beside(movable), wanted, uuid, rules)
    targets = {move.id: move.target for move in moves}
    steps = []
    for one in mine:
        id, no_room = one.record.id, ("no other GPU has room for its share", "free a share")
        reason, hint = one.unmoved or no_room
        unsuspended = failed.get((id, SUSPEND)) or one.unsuspended
        if id in targets:
            steps.append(Step(id, MOVE, one.bytes, targets[id]))
        elif one.record.pod:
            steps.append(Step(id, STAY, one.bytes, "", reason, _OF_POD))
        elif unsuspended:
            steps.append(Step(id, STAY, one.bytes, "", *unsuspended))
        elif one.bytes > host_bytes:
            full = "the host's memory has no room for what it holds"
            steps.append(Step(id, STAY, one.bytes, "", full, "free memory of the host"))
        else:
            host_bytes -= one.bytes
            steps.append(Step(id, SUSPEND, one.bytes, "", reason, hint))
    for record in seen.asleep:
        if _is_on(record, parts) and record.suspension:
            held = sum(record.suspension.bytes.values())
            hint = "resume it with --gpu on another GPU"
            steps.append(Step(record.id, ASLEEP, held, "", "it is suspended already", hint))
    order = (MOVE, SUSPEND, ASLEEP, STAY)
    return sorted(steps, key=lambda step: order.index(step.action))


def _is_on(record: Allocation, parts: set[str]) -> bool:
    return any(share.uuid in parts for share in record.shares)
