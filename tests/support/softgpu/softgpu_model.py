"""A second, slower model of the software GPU's turns: one microsecond at a time."""

from __future__ import annotations

from collections.abc import Sequence

Plan = Sequence[tuple[int, int]]  # moment of submission and time of each kernel, in microseconds


class Turns:
    """Processes that each submit kernels as wide as the GPU to one stream."""

    def __init__(
        self, plans: Sequence[Plan], slice_us: int, switch_us: int, preempts: bool
    ) -> None:
        self.plans = [list(plan) for plan in plans]
        self.slice_us, self.switch_us, self.preempts = slice_us, switch_us, preempts
        self.queues: list[list[int]] = [[] for _ in plans]
        self.ends_ms: list[list[float]] = [[] for _ in plans]
        self.now_us = self.switch_left = 0
        self.slice_left = slice_us
        self.current: int | None = None
        self.amid_kernel = False

    def run(self) -> list[list[float]]:
        """When each kernel ends, in milliseconds."""
        while any(self.plans) or any(self.queues):
            for plan, queue in zip(self.plans, self.queues):
                while plan and plan[0][0] <= self.now_us:
                    queue.append(plan.pop(0)[1])
            if not self.switch_left:
                self._choose()
            self._pass_a_microsecond()
        return self.ends_ms

    def _choose(self) -> None:
        count, current = len(self.queues), self.current
        works = current is not None and bool(self.queues[current])
        if works and self.slice_left:
            return
        after = -1 if current is None else current
        order = [(after + step) % count for step in range(1, count + 1)]
        found = next((number for number in order if self.queues[number]), None)
        if found is None or (works and found != current and self.amid_kernel and not self.preempts):
            return
        if current not in (None, found):
            self.switch_left = self.switch_us
        self.current, self.slice_left = found, self.slice_us

    def _pass_a_microsecond(self) -> None:
        self.now_us += 1
        if self.switch_left:
            self.switch_left -= 1
            return
        queue = [] if self.current is None else self.queues[self.current]
        if not queue:
            self.slice_left = self.slice_us
            return
        queue[0] -= 1
        self.slice_left = max(0, self.slice_left - 1)
        self.amid_kernel = queue[0] > 0
        if not self.amid_kernel:
            queue.pop(0)
            assert self.current is not None
            self.ends_ms[self.current].append(self.now_us / 1000)
