"""How one GPU's time is granted to the containers that share it: pure.

All amounts are parts per million of the GPU's time.
"""

from __future__ import annotations

from collections.abc import Sequence

from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.policies import BEST_EFFORT, FIXED

WHOLE_PPM = 1_000_000
PPM_PER_PERCENT = 10_000
BEST_EFFORT_FLOOR_PPM = PPM_PER_PERCENT


class Tenant:
    """One container's use of the GPU in the last sample.

    wants: its rate limited it, so it would use more. used_ppm: its use; only meaningful if it wants
    no more. guarantee_ppm: its rate is never below this. rank: its place in the distribution of the
    rest, lowest first; None: it gets none of it (policy fixed).
    """

    __slots__ = ("ceiling_ppm", "guarantee_ppm", "rank", "share", "used_ppm", "wants")

    def __init__(self, share: GpuShare, wants: bool, used_ppm: int = 0) -> None:
        self.share, self.wants, self.used_ppm = share, wants, used_ppm
        is_last = share.policy == BEST_EFFORT
        core_ppm = share.core_percent * PPM_PER_PERCENT
        self.guarantee_ppm = BEST_EFFORT_FLOOR_PPM if is_last else core_ppm
        self.ceiling_ppm = share.core_ceiling_percent * PPM_PER_PERCENT
        self.rank = None if share.policy == FIXED else (is_last, -share.priority)


def grants(tenants: Sequence[Tenant]) -> list[int]:
    """The rate of each tenant; the percents of their shares add up to 100 at most.

    Each tenant first gets the part of its guarantee that it would use. The rest is distributed by
    priority, highest first and best-effort last, and within a priority by weight. The rates of
    tenants that want more, plus the use of the others, add up to WHOLE_PPM at most.

    A tenant that wants no more gets its guarantee, plus what no tenant wants, at least a quarter of
    its use: it can start to use more at once, and only that shows that it wants more.
    """
    # the most that each would use now
    claims = [
        tenant.ceiling_ppm if tenant.wants else min(tenant.used_ppm, tenant.ceiling_ppm)
        for tenant in tenants
    ]
    granted = [min(tenant.guarantee_ppm, claim) for tenant, claim in zip(tenants, claims)]
    left = max(0, WHOLE_PPM - sum(granted))
    for tier in _tiers(tenants):
        room = [claims[at] - granted[at] for at in tier]
        weights = [tenants[at].share.weight for at in tier]
        for at, more in zip(tier, divide(left, room, weights)):
            granted[at] += more
            left -= more
    return [
        ppm if tenant.wants else _rate_of_the_content(tenant, ppm, ppm == claim, left)
        for tenant, ppm, claim in zip(tenants, granted, claims)
    ]


def divide(amount: int, room: Sequence[int], weights: Sequence[int]) -> list[int]:
    """Divide `amount` by weight, to each at most its room; the remainder goes to the others.

    Rounds down: fewer units than there are takers are not divided.
    """
    parts = [0] * len(room)
    takers = [at for at in range(len(room)) if room[at] > 0]
    while takers:
        weight = sum(weights[at] for at in takers)
        full = [at for at in takers if room[at] * weight <= amount * weights[at]]
        if not full:
            for at in takers:
                parts[at] = amount * weights[at] // weight
            break
        for at in full:
            parts[at] = room[at]
            amount -= room[at]
        satisfied = set(full)
        takers = [at for at in takers if at not in satisfied]
    return parts


def _tiers(tenants: Sequence[Tenant]) -> list[list[int]]:
    """The tenants that may exceed their guarantee, by rank."""
    tiers: dict[tuple[bool, int], list[int]] = {}
    for at, tenant in enumerate(tenants):
        if tenant.rank is not None:
            tiers.setdefault(tenant.rank, []).append(at)
    return [tiers[rank] for rank in sorted(tiers)]


def _rate_of_the_content(tenant: Tenant, granted: int, is_satisfied: bool, left: int) -> int:
    ahead = max(left, granted // 4) if is_satisfied else 0
    return max(tenant.guarantee_ppm, min(tenant.ceiling_ppm, granted + ahead))
