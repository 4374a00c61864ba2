"""Wait for a condition."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar

T = TypeVar("T")

# Seconds between two samples: a short wait ends early, a long one leaves the processor to others.
_FIRST, _GROWTH, _MOST = 0.005, 1.25, 0.05
# A condition that starts programs takes a third of a processor at most, and is sampled four times a
# second at least.
_REST, _MOST_REST = 2, 0.25


def until(
    condition: Callable[[], T | None], what: str | Callable[[], str] = "", seconds: float = 30
) -> T:
    """Poll until the condition's answer is true, and return the answer.

    what: named in the failure's message, or a function that returns it.

    Raises TimeoutError.
    """
    deadline = time.monotonic() + seconds
    pause = _FIRST
    begun = time.monotonic()
    while not (answer := condition()):
        now = time.monotonic()
        if now > deadline:
            raise TimeoutError(f"waited {seconds} s for {what() if callable(what) else what}")
        time.sleep(max(pause, min(_REST * (now - begun), _MOST_REST)))
        pause = min(pause * _GROWTH, _MOST)
        begun = time.monotonic()
    return answer
