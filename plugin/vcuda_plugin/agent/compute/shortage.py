"""Find whether a share is too small for its container, from counts in the usage page: pure.

The container writes its page: after impossible figures the count starts again.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import NamedTuple

from vcuda_oci.ledger import events

# The part of this time that launches must wait; threads that wait at once are each counted.
WINDOW_SECONDS = 60.0
HEAVY_PERCENT = 50
# A continuing shortage is reported again after pauses that grow between these bounds, which limits
# the lines per day of a container in a loop.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 60.0, 3600.0


class Reading(NamedTuple):
    """One GPU's figures in a page: memory refusals, and time waited. at, waited: seconds."""

    at: float
    refusals: int
    waited: float


class Finding(NamedTuple):
    """kind: of the event. times: since the last report. percent: time waited; 0 for memory."""

    kind: str
    times: int
    percent: int


class _Paced:
    """Findings of one kind that wait until their pause is over."""

    def __init__(self) -> None:
        self.times, self._due, self._pause = 0, 0.0, FIRST_PAUSE_SECONDS

    def add(self, now: float, times: int) -> int:
        """Add findings; return how many to report now."""
        self.times += times
        if not self.times or now < self._due:
            return 0
        if now > self._due + LAST_PAUSE_SECONDS:  # no shortage for a long time
            self._pause = FIRST_PAUSE_SECONDS
        self._due = now + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE_SECONDS)
        count, self.times = self.times, 0
        return count


class Share:
    """One GPU of one container. refusals: the count in the first sample."""

    def __init__(self, first: Reading, refusals: int) -> None:
        self._window, self._refusals = first, refusals
        self._memory, self._time = _Paced(), _Paced()

    def begin(self, first: Reading) -> None:
        """Start again after a restart of the container, which has a new page. The pauses of reports
        stay.
        """
        self._window, self._refusals = first, 0

    def see(self, new: Reading) -> Iterator[Finding]:
        refused = max(0, new.refusals - self._refusals)
        self._refusals = new.refusals
        if times := self._memory.add(new.at, refused):
            yield Finding(events.OUT_OF_MEMORY, times, 0)
        seconds, waited = new.at - self._window.at, new.waited - self._window.waited
        if waited < 0:
            self._window = new
        elif seconds >= WINDOW_SECONDS:
            self._window = new
            percent = min(round(100 * waited / seconds), 100)
            if percent >= HEAVY_PERCENT and (times := self._time.add(new.at, 1)):
                yield Finding(events.THROTTLED, times, percent)
