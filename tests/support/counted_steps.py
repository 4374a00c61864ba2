"""How much work something is, counted: a time would be another on each machine."""

from __future__ import annotations

import sys
from collections.abc import Callable
from typing import Any


def steps(act: Callable[[], Any]) -> int:
    """Lines of Python that it takes."""
    taken = 0

    def count(*_: Any) -> Any:
        nonlocal taken
        taken += 1
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        act()
    finally:
        sys.settrace(before)
    return taken
