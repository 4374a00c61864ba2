"""Group equal Kubernetes Events into counted series and limit how often they are reported: pure.

A container in a crash loop is one series, which is reported after pauses that grow. The rate of all
reports together is bounded, and so is the number of series in memory.
"""

from __future__ import annotations

from .pod_event import Happened

MOST_SERIES = 1000
FIRST_PAUSE_SECONDS, LAST_PAUSE_SECONDS = 5.0, 300.0
# Token bucket of all series together: BURST reports at once, then PER_SECOND.
BURST, PER_SECOND = 20.0, 1.0
# A series without an occurrence for this long starts again: the API server has deleted its Event.
LIFE_SECONDS = 3600.0


class Series:
    """Occurrences of one Event.

    first, last: the first and the latest occurrence. count: how many there were; sent: how many of
    them the API server knows. unsent_at: when the first of the others happened, in seconds since
    1970. due: when the next report is allowed. pause: seconds between reports.
    """

    def __init__(self, first: Happened) -> None:
        self.first = self.last = first
        self.count = self.sent = 0
        self.unsent_at = first.at
        self.due, self.pause = 0.0, FIRST_PAUSE_SECONDS


class AllSeries:
    """All series, the latest occurrence last. now: seconds of any monotonic clock."""

    def __init__(self, now: float) -> None:
        self._of: dict[tuple[str, str, str], Series] = {}
        self._tokens, self._filled = BURST, now
        self.lost = 0  # series that were dropped before they were fully reported

    def add(self, happened: Happened) -> None:
        series = self._of.pop(happened.key, None)
        if series is None or happened.at - series.last.at > LIFE_SECONDS:
            series = Series(happened)
        if series.count == series.sent:
            series.unsent_at = happened.at
        series.count += happened.times
        series.last = happened
        self._of[happened.key] = series  # the series with the latest occurrence is at the end
        if len(self._of) > MOST_SERIES:
            self._drop_one()

    def _drop_one(self) -> None:
        """Drop the oldest series that is fully reported; if there is none, the oldest."""
        sent = (key for key, series in self._of.items() if series.count == series.sent)
        key = next(sent, next(iter(self._of)))
        dropped = self._of.pop(key)
        self.lost += dropped.count != dropped.sent

    def next(self, now: float) -> Series | None:
        """Return the series to report now; None if none is due or the rate limit is reached."""
        self._tokens = min(BURST, self._tokens + (now - self._filled) * PER_SECOND)
        self._filled = now
        if self._tokens < 1:
            return None
        due = [s for s in self._of.values() if s.count != s.sent and s.due <= now]
        return min(due, key=lambda series: series.unsent_at, default=None)

    def tried(self) -> None:
        """Count a call of the API against the rate limit, whether it succeeded or not."""
        self._tokens -= 1

    def is_sent(self, series: Series, now: float) -> None:
        series.sent = series.count
        series.due = now + series.pause
        series.pause = min(2 * series.pause, LAST_PAUSE_SECONDS)

    def anew(self, series: Series) -> None:
        """Start a new series with the unreported rest: the API server has deleted the Event."""
        count = series.count - series.sent
        other = Series(series.last)
        other.count, other.unsent_at, other.pause = count, series.unsent_at, series.pause
        self._of[series.first.key] = other

    @property
    def unsent_since(self) -> float:
        """Time of the first unreported occurrence, in seconds since 1970; infinity if none."""
        unsent = (s.unsent_at for s in self._of.values() if s.count != s.sent)
        return min(unsent, default=float("inf"))
