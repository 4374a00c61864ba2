"""Tells memory that a program needs from memory that it takes because it is there.

JAX takes three quarters of the memory that it sees, vLLM nine tenths, TensorFlow nearly all. What
they hold follows their limit: the same part of it under another limit, and hardly a change over
time. A program that needs its memory holds the same bytes under another limit.
Source: JAX, "GPU memory allocation"; vLLM, gpu_memory_utilization; TensorFlow, "Use a GPU".
"""

from __future__ import annotations

import math
from typing import Any

# What is known: nothing; it needs what it holds; it seems to fill its limit; two limits prove it.
UNKNOWN, NEEDS, MAY_FILL, FILLS = "unknown", "needs", "may-fill", "fills"
_MOST_LIMITS = 4
_ENOUGH_SAMPLES = 60
# Limits that differ by less prove nothing.
_ANOTHER_LIMIT = 1.1
_SAME_PART, _STEADY = 0.04, 0.03
_LEAST_PART, _MOST_LIKELY_PART = 0.5, 0.7
_MOST_PART = 2.0
# Before a program has loaded, what it holds says nothing.
_LOADED_PART = 0.05


class _Fill:
    """Mean and spread of the held part of one limit. Source: Welford 1962."""

    def __init__(self, limit: int, samples: int = 0, mean: float = 0.0, spread: float = 0.0):
        self.limit, self.samples, self.mean, self._spread = limit, samples, mean, spread

    def add(self, part: float) -> None:
        self.samples += 1
        step = part - self.mean
        self.mean += step / self.samples
        self._spread += step * (part - self.mean)

    @property
    def deviation(self) -> float:
        return math.sqrt(self._spread / self.samples) if self.samples else 0.0

    def as_json(self) -> list[float]:
        return [self.limit, self.samples, self.mean, self._spread]


class Fills:
    """The held part of each of the last limits."""

    def __init__(self) -> None:
        self._of: list[_Fill] = []

    def add(self, limit_bytes: int, held_bytes: int) -> None:
        if limit_bytes <= 0 or held_bytes < _LOADED_PART * limit_bytes:
            return
        known = next((fill for fill in self._of if fill.limit == limit_bytes), None)
        if known is None:
            known = _Fill(limit_bytes)
            self._of = [*self._of, known][-_MOST_LIMITS:]
        known.add(min(_MOST_PART, held_bytes / limit_bytes))

    @property
    def verdict(self) -> str:
        """UNKNOWN, NEEDS, MAY_FILL or FILLS."""
        known = [fill for fill in self._of if fill.samples >= _ENOUGH_SAMPLES]
        if not known:
            return UNKNOWN
        if any(fill.deviation > _STEADY for fill in known):
            return NEEDS
        low, high = (pick(known, key=lambda fill: fill.limit) for pick in (min, max))
        if high.limit >= _ANOTHER_LIMIT * low.limit:
            same = abs(high.mean - low.mean) <= _SAME_PART and low.mean >= _LEAST_PART
            return FILLS if same else NEEDS
        return MAY_FILL if known[-1].mean >= _MOST_LIKELY_PART else NEEDS

    @property
    def part(self) -> float:
        """The held part of the last limit; 0: unknown."""
        return self._of[-1].mean if self._of else 0.0

    def as_json(self) -> list[list[float]]:
        return [fill.as_json() for fill in self._of]

    def load(self, tree: Any) -> None:
        """Take over what `as_json` returned. Raises ValueError, TypeError: anything else."""
        found = []
        for limit, samples, mean, spread in tree:
            right = (
                type(limit) is int
                and type(samples) is int
                and all(isinstance(each, (int, float)) for each in (mean, spread))
                and 0 < limit < 1 << 60
                and 0 <= samples < 1 << 60
                and 0 <= mean <= _MOST_PART
                and 0 <= spread <= 1e18
            )
            if not right:
                raise ValueError("not the parts of limits")
            found.append(_Fill(limit, samples, float(mean), float(spread)))
        self._of = found[-_MOST_LIMITS:]
