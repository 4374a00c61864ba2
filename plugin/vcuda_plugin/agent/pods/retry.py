"""Pauses between tries that grow, with chance in them: a cluster's agents must not come at once."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from collections.abc import Callable

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0


class Retry:
    """tell: hears of each trouble, and of the same again only after it was over. longest: seconds
    between two tries."""

    def __init__(self, tell: Callable[[str], object], longest: float = LONGEST_SECONDS) -> None:
        self._tell, self._told, self._pause = tell, "", SHORTEST_SECONDS
        self._longest = longest

    def after(self, trouble: str) -> float:
        """Seconds to wait before the next try."""
        if trouble != self._told:
            self._tell(trouble)
        self._told, pause = trouble, self._pause
        self._pause = min(2 * pause, self._longest)
        return pause * random.uniform(0.5, 1)  # noqa: S311

    def forget(self) -> None:
        """It is over."""
        self._told, self._pause = "", SHORTEST_SECONDS
