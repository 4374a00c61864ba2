"""The first limits page of an allocation."""

from __future__ import annotations

from ..model import mps, policies
from ..model.allocation import Allocation, GpuShare
from ..model.errors import VcudaError
from . import layout

_PPM_PER_PERCENT = 10_000
_POLICY = {
    policies.FIXED: layout.POLICY_FIXED,
    policies.ELASTIC: layout.POLICY_ELASTIC,
    policies.WEIGHTED: layout.POLICY_WEIGHTED,
    policies.BEST_EFFORT: layout.POLICY_BEST_EFFORT,
}
_LATENCY = {policies.NORMAL: layout.LATENCY_NORMAL, policies.LOW: layout.LATENCY_LOW}


def page_of(allocation: Allocation, context_bytes: int = 0, meter_copies: bool = False) -> bytes:
    """The bytes of the page. context_bytes: charged for each context.

    Of a container with an idle time or one that rotates, each call looks whether it is suspended;
    it may begin so. The rate is the reserved core until the arbiter writes a grant. Raises
    VcudaError: the allocation has more GPUs than a page can hold.
    """
    percent = mps.percent_of(allocation) if allocation.isolation == policies.MPS else 0
    gpus = [entry_of(share, context_bytes, percent) for share in allocation.shares]
    begins_off = not allocation.resident
    asks = bool(allocation.idle_suspend) or allocation.rotates or begins_off
    state = layout.UNTIL_CALL if begins_off else layout.AWAKE
    try:
        return layout.limits_page(gpus, meter_copies, asks, state)
    except ValueError as error:
        raise VcudaError(str(error), "placement", "ask for fewer GPUs") from error


def entry_of(share: GpuShare, context_bytes: int, mps_percent: int = 0) -> layout.LimitsGpu:
    return layout.LimitsGpu(
        share.uuid,
        share.memory_bytes,
        share.core_percent,
        share.core_ceiling_percent,
        _POLICY[share.policy],
        share.core_percent * _PPM_PER_PERCENT,
        share.weight,
        int(share.managed),
        context_bytes,
        latency=_LATENCY[share.latency],
        mps_percent=mps_percent,
    )
