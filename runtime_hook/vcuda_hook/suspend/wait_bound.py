"""How long a container keeps its GPU while others wait, and a suspended one waits for it: pure."""

from __future__ import annotations

from collections.abc import Collection, Sequence

from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.free import full
from vcuda_oci.placement.rules import Rules

from ..checkpoint.drive import LOCK_SECONDS, ROOM_SECONDS

# The copies then take 7.7 % of the time. That leaves 2.3 % for the other parts of a swap (the last
# kernels, the start of the programs, the first launches) before a tenth of the GPU's time is lost.
QUANTUM_SWAPS = 12
# A swap that has not been measured yet is taken to run at this rate, each way.
UNMEASURED_BYTES_PER_SECOND = 2 << 30
LEAST_QUANTUM_SECONDS = 1.0


def quantum(held: int, swap: float = 0.0, fixed: float = 0.0) -> float:
    """Seconds for which a container keeps the GPU while others wait. held: bytes. swap: seconds of
    its last suspend and resume together; 0: unknown. fixed: the setting rotation-quantum; 0: none.
    """
    if fixed:
        return fixed
    return max(LEAST_QUANTUM_SECONDS, (swap or 2 * _seconds(held)) * QUANTUM_SWAPS)


def longest_wait(
    mine: Allocation,
    records: Collection[Allocation],
    gpus: Sequence[Gpu],
    rules: Rules,
    fixed: float = 0.0,
) -> float | None:
    """Seconds from a call of a suspended container until it is back, if the driver copies at
    UNMEASURED_BYTES_PER_SECOND or faster; None: no bound, because others that do not rotate may
    need its room for ever: it rotates, or they have more than the GPU.

    records: of all containers. fixed: as `quantum`.
    """
    near = [one for one in records if one.id != mine.id and _meet(one, mine)]
    firm = [one for one in near if not one.rotates]
    rotating = [one for one in near if one.rotates]
    if full(mine.shares, gpus, [share for one in firm for share in one.reserved], rules):
        return None
    if not mine.rotates:
        there = [one for one in rotating if one.resident]
        before = [one for one in firm if not one.resident]
        leave = max([quantum(_held(one), 0.0, fixed) for one in there], default=0.0)
        # Room is made for one after the other.
        each = ROOM_SECONDS + (LOCK_SECONDS if there else 0.0)
        copies = _seconds(sum(_held(one) for one in (*there, *before, mine)))
        return leave + (1 + len(before)) * each + copies
    if any(not one.resident for one in firm):
        return None
    turn = max(
        [quantum(_held(one), 0.0, fixed) + 2 * _seconds(_held(one)) for one in rotating],
        default=0.0,
    )
    return len(rotating) * (turn + LOCK_SECONDS) + _seconds(_held(mine)) + ROOM_SECONDS


def _meet(one: Allocation, other: Allocation) -> bool:
    return bool({share.uuid for share in one.shares} & {share.uuid for share in other.shares})


def _held(one: Allocation) -> int:
    """Bytes of a copy: what a suspended container has off the GPU, or else all of its shares."""
    if one.suspension and not one.resident:
        return sum((one.suspension.needed or one.suspension.bytes).values())
    return sum(share.memory_bytes for share in one.shares)


def _seconds(size: int) -> float:
    return size / UNMEASURED_BYTES_PER_SECOND
