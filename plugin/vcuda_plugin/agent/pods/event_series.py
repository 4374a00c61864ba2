"""What has to be told of, counted by what it is the same as, and when it may be told: pure.

A container in a loop is one series, told of after pauses that grow; all series together are told at
a pace that is bounded, and so is what is kept of them.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .pod_event import Happened

MOST_SERIES = 1000
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 5.0, 300.0
# Of all series: so many at once, and then so many a second.
BURST, PER_SECOND = 20.0, 1.0
# One of which nothing was heard for so long begins anew: the API has forgotten it.
LIFE_SECONDS = 3600.0


class Series:
    """first, last: of what it counts. count: all of it; told: how much of that the API knows.
    untold_at: when the first of the rest happened, in seconds since 1970."""

    def __init__(self, first: Happened) -> None:
        self.first = self.last = first
        self.count = self.told = 0
        self.untold_at = first.at
        self.due, self.pause = 0.0, FIRST_PAUSE_SECONDS


class AllSeries:
    """now: seconds on any clock that never goes back."""

    def __init__(self, now: float) -> None:
        self._of: dict[tuple[str, str, str], Series] = {}
        self._tokens, self._filled = BURST, now
        self.lost = 0  # series that were dropped with something untold

    def add(self, happened: Happened) -> None:
        series = self._of.pop(happened.key, None)
        if series is None or happened.at - series.last.at > LIFE_SECONDS:
            series = Series(happened)
        if series.count == series.told:
            series.untold_at = happened.at
        series.count += happened.times
        series.last = happened
        self._of[happened.key] = series  # the one heard of last is at the end
        if len(self._of) > MOST_SERIES:
            self._drop_one()

    def _drop_one(self) -> None:
        """The longest unheard of whose all is told, or the longest unheard of."""
        told = (key for key, series in self._of.items() if series.count == series.told)
        key = next(told, next(iter(self._of)))
        dropped = self._of.pop(key)
        self.lost += dropped.count != dropped.told

    def next(self, now: float) -> Series | None:
        """The one to tell of now; None: there is none, or it is too soon."""
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return None
        due = [s for s in self._of.values() if s.count != s.told and s.due <= now]
        return min(due, key=lambda series: series.untold_at, default=None)

    def tried(self) -> None:
        """The API was asked for something: that counts, whatever it answered."""
        self._tokens -= 1

    def is_told(self, series: Series, now: float) -> None:
        series.told = series.count
        series.due = now + series.pause
        series.pause = min(2 * series.pause, LAST_PAUSE_SECONDS)

    def anew(self, series: Series) -> None:
        """The API has forgotten it: what is untold is the beginning of another."""
        count = series.count - series.told
        other = Series(series.last)
        other.count, other.untold_at, other.pause = count, series.untold_at, series.pause
        self._of[series.first.key] = other

    @property
    def untold_since(self) -> float:
        """When the first that is untold happened, in seconds since 1970; infinity: all is told."""
        untold = (s.untold_at for s in self._of.values() if s.count != s.told)
        return min(untold, default=float("inf"))
