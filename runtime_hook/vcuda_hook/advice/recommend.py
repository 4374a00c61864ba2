"""A recommended share from a workload's demand: pure."""

from __future__ import annotations

import math
from typing import NamedTuple

from . import fill
from .demand import DAY_SECONDS, PEAK_DAYS, Demand

PERCENTILE = 0.9
# Above what is usual; VPA takes 0.15 and does not look at the peaks of the last days.
MARGIN = 0.075
# Above the highest peak of the last days, which may never come again.
PEAK_MARGIN = 0.05
# Added to both where less is known: this, divided by the days seen.
MARGIN_OF_A_DAY = 0.15
# What is rounded up to: the resource's unit.
UNIT_BYTES = 256 << 20
LEAST_CORE, CORE_MARGIN = 5, 0.15
# Below this nothing is recommended.
LEAST_SECONDS = DAY_SECONDS
LEAST_SAMPLES = 360
# A workload that wants the GPU for so much of its time takes all that it gets.
_ALL_PERCENT = 95.0

# Reasons.
TOO_LITTLE, IDLE, UNKNOWN = "too-little-data", "idle", "unknown"
DEMAND, REFUSED, TAKES_ALL, MAY_TAKE_ALL = "demand", "refused", "takes-all", "may-take-all"
LOW, MEDIUM, HIGH = "low", "medium", "high"


class Advice(NamedTuple):
    """memory_bytes, core_percent: recommended; None: leave it as it is. *_reason: one of the above.

    peak_bytes: the highest of the last PEAK_DAYS days. usual_bytes: the 90th percentile of the
    daily peaks. used_percent, wanted_percent: of the GPU's time, the 90th percentile of its work.
    days: in which it was seen. confidence: "", LOW, MEDIUM or HIGH.
    """

    memory_bytes: int | None
    memory_reason: str
    core_percent: int | None
    core_reason: str
    peak_bytes: int | None
    usual_bytes: int | None
    used_percent: float | None
    wanted_percent: float | None
    days: int
    confidence: str


def recommend(demand: Demand) -> Advice:
    """The share that the workload needs on each of its GPUs, whatever its user asked for."""
    peak = max((peak for _, peak in demand.peaks), default=None)
    usual = demand.memory.percentile(PERCENTILE)
    used, wanted = demand.used.percentile(PERCENTILE), demand.wanted.percentile(PERCENTILE)
    enough = demand.last - demand.first >= LEAST_SECONDS and demand.samples >= LEAST_SAMPLES
    nothing: tuple[int | None, str] = None, TOO_LITTLE
    memory = _memory(demand, peak, usual) if enough else nothing
    core = _core(demand, wanted) if enough else nothing
    usual_bytes = None if usual is None else int(usual)
    confidence = _confidence(demand.days) if enough else ""
    return Advice(*memory, *core, peak, usual_bytes, used, wanted, demand.days, confidence)


def _memory(demand: Demand, peak: int | None, usual: float | None) -> tuple[int | None, str]:
    verdict = demand.fills.verdict
    if not peak:
        return None, UNKNOWN if peak is None else IDLE
    refused = peak > demand.share[0]
    if verdict in (fill.FILLS, fill.MAY_FILL) and not refused:
        return None, TAKES_ALL if verdict == fill.FILLS else MAY_TAKE_ALL
    of_few_days = MARGIN_OF_A_DAY / max(1, demand.days)
    needed = max(
        (usual or 0.0) * (1 + MARGIN + of_few_days), peak * (1 + PEAK_MARGIN + of_few_days)
    )
    units = max(1, math.ceil(needed / UNIT_BYTES))
    return units * UNIT_BYTES, REFUSED if refused else DEMAND


def _core(demand: Demand, wanted: float | None) -> tuple[int | None, str]:
    if wanted is None:
        return None, IDLE
    if wanted >= _ALL_PERCENT:
        return None, TAKES_ALL
    return min(100, max(LEAST_CORE, math.ceil(wanted * (1 + CORE_MARGIN)))), DEMAND


def _confidence(days: int) -> str:
    return HIGH if days >= PEAK_DAYS else MEDIUM if days >= 3 else LOW
