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
_ENOUGH_SAMPLES = 360
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

    def add(self, part: float, times: int) -> None:
        self.samples += times
        step = part - self.mean
        self.mean += step * times / self.samples
        # Rounding must not make it negative.
        self._spread = max(0.0, self._spread + step * times * (part - self.mean))

    def is_like(self, limit: int) -> bool:
        """Whether another limit is too near to this one to prove anything."""
        low, high = sorted((self.limit, limit))
        return high < _ANOTHER_LIMIT * low

    @property
    def deviation(self) -> float:
        return math.sqrt(self._spread / self.samples) if self.samples else 0.0

    def as_json(self) -> list[float]:
        return [self.limit, self.samples, self.mean, self._spread]


class Fills:
    """The held part of some limits, the present one last.

    Of many limits those that differ stay: a share that is changed often by little must not forget
    what the program held under its first limit.
    """

    def __init__(self) -> None:
        self._of: list[_Fill] = []

    def add(self, limit_bytes: int, held_bytes: int, times: int = 1) -> None:
        if limit_bytes <= 0 or held_bytes < _LOADED_PART * limit_bytes:
            return
        if not self._of or self._of[-1].limit != limit_bytes:
            self._turn_to(limit_bytes)
        self._of[-1].add(min(_MOST_PART, held_bytes / limit_bytes), times)

    def _turn_to(self, limit: int) -> None:
        known = next((fill for fill in self._of if fill.limit == limit), None)
        others = [fill for fill in self._of if fill is not known]
        if len(others) >= _MOST_LIMITS:
            others.remove(next((fill for fill in others if fill.is_like(limit)), others[0]))
        self._of = [*others, known or _Fill(limit)]

    @property
    def verdict(self) -> str:
        """UNKNOWN, NEEDS, MAY_FILL or FILLS."""
        known = [fill for fill in self._of if fill.samples >= _ENOUGH_SAMPLES]
        if not known:
            return UNKNOWN
        now = known[-1]
        before = next((each for each in reversed(known) if not each.is_like(now.limit)), None)
        if any(fill.deviation > _STEADY for fill in (now, before) if fill):
            return NEEDS
        if before:
            same = abs(before.mean - now.mean) <= _SAME_PART and now.mean >= _LEAST_PART
            return FILLS if same else NEEDS
        return MAY_FILL if now.mean >= _MOST_LIKELY_PART else NEEDS

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
