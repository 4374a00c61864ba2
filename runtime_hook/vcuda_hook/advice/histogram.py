"""A decaying histogram: the weight of a sample halves every day.

Buckets grow by 5 %, so a figure is known to 5 % whatever its size, in a bounded number of buckets.
Source of the numbers: Kubernetes' Vertical Pod Autoscaler (VPA), aggregations_config.go.
"""

from __future__ import annotations

import math
from typing import Any

HALF_LIFE_SECONDS = 24 * 3600.0
GROWTH = 1.05
# Weights are kept as of one time; it moves on before they grow too large for a float.
_MOST_HALVINGS = 50.0
_NOTHING = 1e-9


class Histogram:
    """Weights of values from 0 to `most`, the first bucket `first` wide, in the unit of values."""

    def __init__(self, first: float, most: float) -> None:
        self._first, self._most = first, most
        self._as_of = 0.0  # seconds since 1970; a sample of this time has weight 1
        self._weights: dict[int, float] = {}

    def add(self, value: float, now: float, weight: float = 1.0) -> None:
        """Add a sample. now: seconds since 1970; values outside the range count as its ends."""
        if weight <= 0:
            return
        halvings = (now - self._as_of) / HALF_LIFE_SECONDS
        if not self._weights or halvings < -1:  # empty, or the clock was set back
            self._as_of, halvings = now, 0.0
        elif halvings > _MOST_HALVINGS:
            self._decay(halvings)
            self._as_of, halvings = now, 0.0
        bucket = self._bucket(min(max(value, 0.0), self._most))
        self._weights[bucket] = self._weights.get(bucket, 0.0) + weight * 2.0**halvings

    def percentile(self, part: float) -> float | None:
        """The upper end of the bucket below which `part` (0 to 1) of the weight is; None: empty."""
        total, below = sum(self._weights.values()), 0.0
        for bucket in sorted(self._weights):
            below += self._weights[bucket]
            if below >= part * total * (1 - _NOTHING):
                return min(self._most, self._end(bucket))
        return None

    def as_json(self) -> dict[str, Any]:
        weights = {str(bucket): round(weight, 9) for bucket, weight in self._weights.items()}
        return {"as_of": self._as_of, "weights": weights}

    def load(self, tree: Any) -> None:
        """Take over what `as_json` returned.

        Raises ValueError, TypeError, KeyError, AttributeError: anything else.
        """
        as_of, weights = _finite(tree["as_of"]), tree["weights"]
        last = self._bucket(self._most)
        found = {int(bucket): _finite(weight) for bucket, weight in weights.items()}
        if not all(0 <= bucket <= last and weight >= 0 for bucket, weight in found.items()):
            raise ValueError("not a histogram of this range")
        self._as_of, self._weights = as_of, found

    def _decay(self, halvings: float) -> None:
        part = 0.5**halvings
        decayed = {bucket: weight * part for bucket, weight in self._weights.items()}
        self._weights = {bucket: each for bucket, each in decayed.items() if each > _NOTHING}

    def _bucket(self, value: float) -> int:
        return int(math.log(value / self._first * (GROWTH - 1) + 1) / math.log(GROWTH))

    def _end(self, bucket: int) -> float:
        return self._first * (GROWTH ** (bucket + 1) - 1) / (GROWTH - 1)


def _finite(value: Any) -> float:
    if not isinstance(value, (int, float)) or not math.isfinite(value) or abs(value) > 1e30:
        raise ValueError("not a number")
    return float(value)
