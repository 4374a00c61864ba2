"""Find work beside a container's turns, from NVML's samples and the turn keeper's figures. Pure.

A container writes its own usage page, so it can show an idle queue while its kernels run into the
turns of others. NVML and the keeper do not read that page. An honest container uses no more of a
second than it held of it, if it could not use the GPU without a turn in that second. What it uses
beyond that is hidden work, which the keeper charges to it (libvcuda/turns/queue.h).

One second shows little: NVML's sample may cover a different one, and a program that works in bursts
then seems to use what it did not hold. So work counts as hidden only if, in POLLS in a row,

  the mean excess is far above its own spread,
  no second shows the opposite, a turn without work,
  and all processes together use no more than the GPU has.

From then on the signed excess of these polls and of each later one is summed, and each new maximum
of the sum is charged, until the mean no longer shows it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Mapping
from math import sqrt
from typing import NamedTuple

# The polls of a mean.
POLLS = 16
# So many times its standard error must the mean exceed the margin.
CERTAIN = 5.0
# Not counted: what NVML rounds, and the ends of turns.
MARGIN = 0.03
# A second in which a container held so much more than it used shows an honest one.
IDLE = 0.1
# Seconds that the limits page can hold.
MOST_CHARGED = 60.0
# NVML's figures may add up to this; above it they say nothing.
MOST_USED = 1.1


class Poll(NamedTuple):
    """One second of one GPU.

    seconds: since the poll before. held, used: parts of the second (0 to 1), by allocation; the
    keeper's and NVML's. free_ns: time in which the container could use the GPU without a turn,
    counted until before the second. total: what NVML says of all processes.
    """

    seconds: float
    held: Mapping[str, float]
    used: Mapping[str, float]
    free_ns: Mapping[str, int]
    total: float


class Hidden(NamedTuple):
    """What a container hides. new_seconds: since the last poll, to be charged.

    used_percent, held_percent: in the seconds of the last polls.
    """

    new_seconds: float
    used_percent: int
    held_percent: int


class _Second(NamedTuple):
    """What one container held and used of a second, and how much time the second stands for."""

    seconds: float
    held: float
    used: float
    total: float
    free_ns: int


class _Container:
    """sum, charged: seconds of excess since its work counts as hidden, and the part charged."""

    def __init__(self) -> None:
        self._seconds: deque[_Second] = deque(maxlen=POLLS)
        self._next: _Second | None = None
        self._hides = False
        self._sum = self._charged = 0.0

    def add(self, new: _Second) -> Hidden | None:
        """Add a poll; return what is hidden, None: nothing.

        Whether a second was free of time without turns shows in the poll after it.
        """
        last, self._next = self._next, new
        if last is None or new.free_ns != last.free_ns:
            # Without turns, nothing shows that a container obeys which did not.
            if not self._hides:
                self._seconds.clear()
            return None
        # At rest it does not show that it obeys.
        if not self._hides or max(last.used, last.held) > MARGIN:
            self._seconds.append(last)
        hid = self._hides
        self._judge()
        if not self._hides:
            self._sum = self._charged = 0.0
            return None
        for second in [last] if hid else self._seconds:
            self._sum += second.seconds * (second.used - second.held)
        charge = min(MOST_CHARGED, max(0.0, self._sum - self._charged))
        self._charged += charge
        used, held = (
            round(100 * _mean(values))
            for values in ([one.used for one in self._seconds], [one.held for one in self._seconds])
        )
        return Hidden(charge, used, held)

    def _judge(self) -> None:
        excesses = [one.used - one.held for one in self._seconds]
        if not excesses or _mean(one.total for one in self._seconds) > MOST_USED:
            self._hides = False
        elif self._hides:
            self._hides = _mean(excesses) > MARGIN
        elif len(excesses) == POLLS and min(excesses) >= -IDLE:
            mean = _mean(excesses)
            error = sqrt(_mean((one - mean) ** 2 for one in excesses) / POLLS)
            self._hides = mean > MARGIN + CERTAIN * error


class HiddenWork:
    """The containers of one GPU."""

    def __init__(self) -> None:
        self._containers: dict[str, _Container] = {}

    def add(self, poll: Poll) -> dict[str, Hidden]:
        """Add a poll; return the containers that hide work, by allocation."""
        self._containers = {id: self._containers.get(id) or _Container() for id in poll.held}
        found = {}
        for id, container in self._containers.items():
            used = min(1.0, poll.used.get(id, 0.0))
            second = _Second(poll.seconds, poll.held[id], used, poll.total, poll.free_ns[id])
            hidden = container.add(second)
            if hidden:
                found[id] = hidden
        return found


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
