"""Whether a suspended container has room to come back, and behind which others it waits: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vcuda_oci.model.allocation import Allocation, GpuShare, moved
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.suspension import WAITING
from vcuda_oci.placement import free
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.placement.rules import Rules


def refusal(
    mine: Allocation,
    records: Sequence[Allocation],
    gpus: Sequence[Gpu],
    rules: Rules,
    waiters: Collection[str],
    drained: Collection[str] = (),
) -> Refused | None:
    """Why `mine` cannot come back now; None: it can. drained: UUIDs of the drained GPUs.

    Containers that began to wait earlier come first: their shares count as taken. Those that rotate
    come after all that do not. On another GPU than its own a container takes no promised room, and
    waits only behind others that leave their own GPU too. waiters: ids of the records for which a
    program still waits; the record of a killed program is ignored.
    """
    others = [other for other in records if other.id != mine.id]
    moves = mine.suspension and mine.suspension.moves
    taken = [share for other in others for share in (other.reserved if moves else other.resident)]
    wanted = _wanted(mine)
    for share in wanted:
        if share.uuid in drained:
            hint = "run 'vcuda undrain', or resume it with --gpu on another GPU"
            return Refused(f"{share.uuid} is drained", hint)
    refused = free.beside_mps(wanted, others)
    if refused:
        return refused
    refused = free.no_room(wanted, gpus, taken, rules)
    if refused:
        leave = [other.id for other in others if _is_in_room(other, wanted)]
        hint = f"suspend {leave[0]}, which has its room" if leave else refused.hint
        return Refused(refused.reason, hint)
    first = earlier(mine, others, waiters)
    taken += [share for other in first for share in _wanted(other)]
    if free.no_room(wanted, gpus, taken, rules):
        names = ", ".join(other.id for other in first)
        return Refused(f"{names} waited for room before", "wait, or end another container")
    return None


def earlier(
    mine: Allocation, others: Sequence[Allocation], waiters: Collection[str]
) -> list[Allocation]:
    """The waiting containers on GPUs of `mine` that come before it. waiters: as `refusal`."""
    now = _turn(mine)
    uuids = {share.uuid for share in _wanted(mine)}
    return [
        other
        for other in others
        if other.id in waiters
        and other.suspension
        and other.suspension.step == WAITING
        and bool(other.suspension.moves) == bool(mine.suspension and mine.suspension.moves)
        and _turn(other) < now
        and any(share.uuid in uuids for share in _wanted(other))
    ]


def _is_in_room(other: Allocation, wanted: Sequence[GpuShare]) -> bool:
    """Whether it rotates on one of these GPUs: the node agent takes it out, where one runs."""
    uuids = {share.uuid for share in wanted}
    return other.rotates and any(share.uuid in uuids for share in other.resident)


def _wanted(record: Allocation) -> list[GpuShare]:
    """The shares that the container waits for, of the GPUs that it shall come to."""
    return moved(record.shares, record.suspension.moves if record.suspension else {})


def _turn(record: Allocation) -> tuple[bool, float, str]:
    wanted = record.suspension.wanted if record.suspension else 0.0
    return record.rotates, wanted or float("inf"), record.id
