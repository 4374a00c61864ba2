"""Parse times such as "10m"."""

from __future__ import annotations

from .errors import VcudaError

_UNITS = {"s": 1, "m": 60, "h": 3600, "d": 86400}
NEVER = "never"
MOST_SECONDS = 30 * _UNITS["d"]


def parse_seconds(text: str, name: str, where: str) -> int:
    """Parse "90s", "10m", "3h" or "2d" to seconds; 0 for "never". Raises VcudaError."""
    if text == NEVER:
        return 0
    number, unit = text[:-1], text[-1:]
    right = number.isascii() and number.isdigit() and len(number) <= 8 and unit in _UNITS
    seconds = int(number) * _UNITS[unit] if right else 0
    if not 1 <= seconds <= MOST_SECONDS:
        hint = f"write {NEVER}, or a time from 1s to 30d, such as 90s, 10m or 2h"
        raise VcudaError(f"{name} cannot be '{text}'", where, hint)
    return seconds
