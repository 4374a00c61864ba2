"""Which containers have been without GPU work for their idle time. Pure: no I/O.

Work is what the container's usage page shows: launches, copies that are metered, GPU time, memory
allocated or freed. The page is the container's own, so it can only keep itself awake.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple


class Sample(NamedTuple):
    """One container's state. idle_suspend: seconds; 0: never. work: any figures that change with
    each piece of work. is_awake: it is not suspended, and no step is under way."""

    idle_suspend: int
    work: tuple[int, ...]
    is_awake: bool


class Idleness:
    """Follows the containers by their ids."""

    def __init__(self) -> None:
        self._since: dict[str, tuple[tuple[int, ...], float]] = {}

    def update(self, now: float, samples: Mapping[str, Sample]) -> list[str]:
        """Return the ids of those with an idle time that is over, the longest first.

        now: monotonic seconds. The time begins with the first sample, and again when the container
        is awake again.
        """
        self._since = {
            id: self._seen(id, now, sample) for id, sample in samples.items() if sample.is_awake
        }
        over = [
            id
            for id, (_, since) in self._since.items()
            if samples[id].idle_suspend and now - since >= samples[id].idle_suspend
        ]
        return sorted(over, key=lambda id: self._since[id][1])

    def begin_again(self, id: str) -> None:
        """Forget the idle time of a container that could not be suspended."""
        self._since.pop(id, None)

    def seconds(self, id: str, now: float) -> float:
        """How long the container has been without work; 0 for one that is not awake."""
        return now - self._since[id][1] if id in self._since else 0.0

    def _seen(self, id: str, now: float, sample: Sample) -> tuple[tuple[int, ...], float]:
        work, since = self._since.get(id, (None, now))
        return (sample.work, since if work == sample.work else now)
