"""Parse Kubernetes quantities, such as "30", "10k" and "4Gi"."""

from __future__ import annotations

import re
from fractions import Fraction

_AMOUNT = re.compile(
    r"(\d{1,20})(?:\.(\d{0,20}))?(?:[eE](-?\d{1,2})|([numkMGTPE]|[KMGTPE]i)?)", re.ASCII
)
_TIMES = {"n": Fraction(1, 10**9), "u": Fraction(1, 10**6), "m": Fraction(1, 1000)}
_TIMES |= {letter: Fraction(1000**power) for power, letter in enumerate("kMGTPE", 1)}
_TIMES |= {letter + "i": Fraction(1024**power) for power, letter in enumerate("KMGTPE", 1)}
_MOST = 1 << 62


def whole(amount: object) -> int | None:
    """Return a quantity as a whole number from 0; None if it is not one.

    An API server writes 10000 as "10k". Source: k8s.io/apimachinery, pkg/api/resource, "Quantity".
    """
    if type(amount) is int:
        return amount if 0 <= amount < _MOST else None
    if isinstance(amount, str) and amount.isascii() and amount.isdigit() and len(amount) <= 18:
        return int(amount)
    found = _AMOUNT.fullmatch(amount) if isinstance(amount, str) else None
    if not found:
        return None
    digits, decimals, power, suffix = found.groups()
    value = Fraction(f"{digits}.{decimals or 0}")
    value *= Fraction(10) ** int(power) if power else _TIMES.get(suffix, Fraction(1))
    return int(value) if value.denominator == 1 and value < _MOST else None
