"""Growing, random pauses between retries: agents of a cluster must not retry at the same time."""

from __future__ import annotations

import random
from collections.abc import Callable

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


class Retry:
    """State of one retried action.

    report: called with each error text that differs from the one before, and again after a success.
    longest: the longest pause in seconds.
    """

    def __init__(self, report: Callable[[str], object], longest: float = LONGEST_SECONDS) -> None:
        self._report, self._reported, self._pause = report, "", SHORTEST_SECONDS
        self._longest = longest

    def after(self, trouble: str) -> float:
        """Report an error if it is new; return the seconds to wait before the next try."""
        if trouble != self._reported:
            self._report(trouble)
        self._reported, pause = trouble, self._pause
        self._pause = min(2 * pause, self._longest)
        return pause * random.uniform(0.5, 1)  # noqa: S311

    def forget(self) -> None:
        """Note a success: the next error is reported, and the pause is short again."""
        self._reported, self._pause = "", SHORTEST_SECONDS
