"""What one workload has held, used and waited for: bounded, however long it runs.

Memory is a peak for each day, because one peak above the share ends a program. A sample of compute
weighs as much as the workload wanted in it: idle time says nothing of what work needs, and rare
bursts have most of the work.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

from .fill import Fills
from .histogram import Histogram

DAY_SECONDS = 24 * 3600.0
# A week and a day, so that what runs once a week is remembered until it runs again.
PEAK_DAYS = 8
# A refusal shows that more was needed, not how much. Source: VPA's --oom-bump-up-ratio and
# --oom-min-bump-up-bytes.
BUMP, LEAST_BUMP_BYTES = 1.2, 100 << 20
_FIRST_BYTES, _MOST_BYTES = float(10 << 20), float(1 << 40)
_FIRST_PERCENT = 0.5


class Sample(NamedTuple):
    """One container's figures on one GPU; None: unknown.

    limit_bytes, core_percent: its share. held_bytes: memory that it holds. used_percent,
    waited_percent: part of the time since the sample before in which it used the GPU and in which
    its launches waited. refused: allocations refused since then. times: how many samples it stands
    for.
    """

    limit_bytes: int
    core_percent: int
    held_bytes: int | None
    used_percent: float | None
    waited_percent: float | None
    refused: int = 0
    times: int = 1


class Demand:
    """The demand of one workload on each of its GPUs.

    first, last: times of its first and last sample, seconds since 1970. days: days in which it had
    samples. peaks: [day, bytes] of the last days, the oldest first. used, wanted: percent of the
    GPU's time; wanted is used and waited for together. share: its last memory limit and core.
    """

    def __init__(self) -> None:
        self.first = self.last = 0.0
        self.samples = self.days = self.refused = 0
        self.share = (0, 0)
        self.peaks: list[list[int]] = []
        self.memory = Histogram(_FIRST_BYTES, _MOST_BYTES)
        self.used = Histogram(_FIRST_PERCENT, 100.0)
        self.wanted = Histogram(_FIRST_PERCENT, 100.0)
        self.fills = Fills()

    def add(self, sample: Sample, now: float) -> None:
        """Add a sample of one of the workload's containers. now: seconds since 1970."""
        if not self.samples or now < self.first:
            self.first = now
        self.last = now
        self.samples += sample.times
        self.share = sample.limit_bytes, sample.core_percent
        self.refused += sample.refused
        if sample.held_bytes is not None:
            needed = sample.held_bytes
            if sample.refused:
                more = max(sample.limit_bytes * BUMP, sample.limit_bytes + LEAST_BUMP_BYTES)
                needed = max(needed, int(more))
            else:
                self.fills.add(sample.limit_bytes, sample.held_bytes, sample.times)
            self._peak(needed, now)
        if sample.used_percent is not None and sample.waited_percent is not None:
            wanted = min(100.0, sample.used_percent + sample.waited_percent)
            self.used.add(sample.used_percent, now, wanted)
            self.wanted.add(wanted, now, wanted)

    def _peak(self, held_bytes: int, now: float) -> None:
        day = int(now // DAY_SECONDS)
        # Later days than today are of a clock that was set back.
        today = [peak for its, peak in self.peaks if its >= day]
        if today:
            self.peaks[-len(today) :] = [[day, max(held_bytes, *today)]]
            return
        if self.peaks:
            ended, peak = self.peaks[-1]
            self.memory.add(peak, (ended + 1) * DAY_SECONDS)
        self.peaks = [*self.peaks, [day, held_bytes]][-PEAK_DAYS:]
        self.days += 1

    def as_json(self) -> dict[str, Any]:
        return {
            "first": self.first,
            "last": self.last,
            "samples": self.samples,
            "days": self.days,
            "refused": self.refused,
            "share": list(self.share),
            "peaks": self.peaks,
            "memory": self.memory.as_json(),
            "used": self.used.as_json(),
            "wanted": self.wanted.as_json(),
            "fills": self.fills.as_json(),
        }


def parse(tree: Any) -> Demand:
    """What `as_json` returned. Raises ValueError, TypeError, KeyError, AttributeError: anything
    else.
    """
    found = Demand()
    found.first, found.last = _time(tree["first"]), _time(tree["last"])
    found.samples, found.days, found.refused = (
        _count(tree[key]) for key in ("samples", "days", "refused")
    )
    limit, core = map(_count, tree["share"])
    found.share = limit, core
    found.peaks = [[_count(day), _count(peak)] for day, peak in tree["peaks"]][-PEAK_DAYS:]
    if [day for day, _ in found.peaks] != sorted({day for day, _ in found.peaks}):
        raise ValueError("not peaks of days")
    found.memory.load(tree["memory"])
    found.used.load(tree["used"])
    found.wanted.load(tree["wanted"])
    found.fills.load(tree["fills"])
    return found


def _count(value: Any) -> int:
    if type(value) is not int or not 0 <= value < 1 << 62:
        raise ValueError("not a number of bytes, samples or days")
    return value


def _time(value: Any) -> float:
    if not isinstance(value, (int, float)) or not (math.isfinite(value) and 0 <= value < 1 << 40):
        raise ValueError("not a time")
    return float(value)
