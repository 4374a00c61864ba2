"""Whether a share is too small for its container, from what the usage page counts: pure.

A page is its container's own word: after impossible figures the count begins anew.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from vcuda_oci.ledger import events

if TYPE_CHECKING:
    from collections.abc import Iterator

# Heavily: launches waited for as much of so long, threads that waited at once each counted.
WINDOW_SECONDS = 60.0
HEAVY_PERCENT = 50
# A shortage that goes on is reported again after pauses that grow from one to the other: a
# container in a loop gives so many lines in a day.
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 60.0, 3600.0


class Reading(NamedTuple):
    """What one page says of one GPU: times it was refused memory, and waited. at, waited: s."""

    at: float
    refusals: int
    waited: float


class Finding(NamedTuple):
    """kind: of the event. times: how often since it was reported last. percent: waited, 0 of
    memory."""

    kind: str
    times: int
    percent: int


class _Told:
    """Findings of one kind that wait for their pause to end."""

    def __init__(self) -> None:
        self.times, self._due, self._pause = 0, 0.0, FIRST_PAUSE_SECONDS

    def add(self, now: float, times: int) -> int:
        """How many to report now."""
        self.times += times
        if not self.times or now < self._due:
            return 0
        if now > self._due + LAST_PAUSE_SECONDS:  # it was well for long
            self._pause = FIRST_PAUSE_SECONDS
        self._due = now + self._pause
        self._pause = min(2 * self._pause, LAST_PAUSE_SECONDS)
        count, self.times = self.times, 0
        return count


class Share:
    """One GPU of one container. refusals: those before the first look."""

    def __init__(self, first: Reading, refusals: int) -> None:
        self._window, self._refusals = first, refusals
        self._memory, self._time = _Told(), _Told()

    def begin(self, first: Reading) -> None:
        """The container was started anew, and so its page. What was reported stays reported."""
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
            heavy = percent >= HEAVY_PERCENT
            if times := self._time.add(new.at, int(heavy)) if heavy else 0:
                yield Finding(events.THROTTLED, times, percent)
