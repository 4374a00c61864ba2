"""Find work beside a container's turns, from NVML's samples and the turn keeper's figures. Pure.

A container writes its own usage page, so it can show an idle queue while its kernels run into the
turns of others. NVML and the keeper do not read that page. An honest container uses no more of a
second than it held of it, if it could not use the GPU without a turn in that second. What it uses
beyond that is hidden work, which the keeper charges to it (libvcuda/turns/tenant/queue.h).

One second shows little: NVML's sample may cover a different one, and a program that works in bursts
then seems to use what it did not hold. So work counts as hidden only if, in POLLS in a row,

  the mean excess is far above its own spread,
  no second shows the opposite, a turn without work,
  and NVML's figures can be believed.

Of a container that gives false signals in nearly all of them, only the mean counts.

From then on the signed excess of these polls and of each later one is summed, and each new maximum
of the sum is charged, until the mean no longer shows it.

NVML may count a process's wait for the GPU as work, or the work of other processes. They are
believed where no other process works, and where they show no excess of another container: it waits
for its turns with nothing on the GPU, so they do not count the work of others as its own. If they
add up to more than the GPU has, each one's part of the GPU is its part of their sum, which decides
whether it hides work. It is charged for its whole figure then: a wait among its own kernels was one
for the turns of others.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Mapping
from functools import partial
from math import sqrt
from typing import NamedTuple

# The polls of a mean.
POLLS = 16
# The mean must exceed the margin by so many times its standard error.
CERTAIN = 5.0
# Excess up to this is not counted: NVML rounds, and turns end late. Use up to this is idleness.
MARGIN = 0.03
# Both for a container that gives false signals. Only the mean counts of it, and NVML's figures are
# believed: no honest container is charged by mistake.
CERTAIN_OF_FALSE, MARGIN_OF_FALSE = 2.0, 0.005
# A container that used so much less than it held in a second had a turn without work.
IDLE = 0.1
# So large a part of the seconds counts as all: in which one figure is the larger one, or in which a
# container gave false signals. Else one honest second would put it off by POLLS.
NEARLY_ALL = 0.8
# Seconds that the limits page can hold.
MOST_CHARGED = 60.0


class Hidden(NamedTuple):
    """What a container hides. new_seconds: since the last poll, to be charged.

    used_percent, held_percent: in the seconds of the last polls.
    """

    new_seconds: float
    used_percent: int
    held_percent: int


class Second(NamedTuple):
    """What one container held and used of a second.

    seconds: since the poll before, which the second stands for. held, used: parts of the second (0
    to 1); the keeper's and NVML's. total: what all containers use together. free_ns: time in which
    the container could use the GPU without a turn, counted until before the second. false: whether
    it gave false signals in the second. free: the part of the second in which it could use the GPU
    without a turn, known one poll later.
    """

    seconds: float
    held: float
    used: float
    total: float
    free_ns: int
    false: bool
    free: float = 0.0

    @property
    def part(self) -> float:
        """Of the GPU's time; `used`, where the figures add up to no more than the GPU has."""
        return self.used / max(1.0, self.total)


class _Container:
    """What NVML and the keeper report of one container.

    seconds: without time free of turns. samples: all seconds. sum, charged: seconds of excess since
    its work counts as hidden, and the part charged.
    """

    def __init__(self) -> None:
        self._seconds: deque[Second] = deque(maxlen=POLLS)
        self._samples: deque[Second] = deque(maxlen=POLLS)
        self._next: Second | None = None
        self._hides = False
        self._sum = self._charged = 0.0

    @property
    def samples(self) -> list[Second]:
        """The last polls; none before there are POLLS."""
        return list(self._samples) if len(self._samples) == POLLS else []

    def add(self, new: Second, is_believed: Callable[[], bool]) -> Hidden | None:
        """Add a poll; return what is hidden, None: nothing.

        Only the poll after a second shows whether the second had time without turns.
        """
        last, self._next = self._next, new
        if last is not None:
            free = (new.free_ns - last.free_ns) / 1e9 / new.seconds
            self._samples.append(last._replace(free=free))
        if last is None or new.free_ns != last.free_ns:
            # Without turns nothing shows whether a container obeys them.
            if not self._hides:
                self._seconds.clear()
            return None
        # A second at rest does not show that it obeys.
        if not self._hides or max(last.used, last.held) > MARGIN:
            self._seconds.append(last)
        hid = self._hides
        self._judge(is_believed)
        if not self._hides:
            self._sum = self._charged = 0.0
            return None
        for second in [last] if hid else self._seconds:
            self._sum += second.seconds * (second.used - second.held)
        charge = min(MOST_CHARGED, max(0.0, self._sum - self._charged))
        self._charged += charge
        used = _mean(one.part for one in self._seconds)
        held = _mean(one.held for one in self._seconds)
        return Hidden(charge, round(100 * used), round(100 * held))

    def _judge(self, is_believed: Callable[[], bool]) -> None:
        if not self._seconds:
            return
        excesses = [one.part - one.held for one in self._seconds]
        mean = _mean(excesses)
        lies = sum(one.false for one in self._seconds)
        false = lies >= NEARLY_ALL * len(self._seconds)
        margin, certain = (MARGIN_OF_FALSE, CERTAIN_OF_FALSE) if false else (MARGIN, CERTAIN)
        if self._hides:
            # Believed once: while it pays, others may have the GPU without turns.
            self._hides = mean > margin
        elif len(excesses) == POLLS and (false or min(excesses) >= -IDLE):
            alone = _mean(one.total - one.used for one in self._seconds) <= MARGIN
            error = sqrt(_mean((one - mean) ** 2 for one in excesses) / POLLS)
            exceeds = mean > margin + certain * error
            self._hides = exceeds and (false or alone or is_believed())


class HiddenWork:
    """The containers of one GPU."""

    def __init__(self) -> None:
        self._containers: dict[str, _Container] = {}

    def add(self, poll: Mapping[str, Second]) -> dict[str, Hidden]:
        """Add a poll; return the containers that hide work, by allocation as in `poll`."""
        self._containers = {id: self._containers.get(id) or _Container() for id in poll}
        found = {}
        for id, container in self._containers.items():
            hidden = container.add(poll[id], partial(self._is_distinguished, id))
            if hidden:
                found[id] = hidden
        return found

    def _is_distinguished(self, id: str) -> bool:
        """Whether NVML's figures show that they do not mix the container ID with another one."""
        own = self._containers[id].samples
        all_samples = {at: one.samples for at, one in self._containers.items()}
        known = [samples for samples in all_samples.values() if samples]
        total = sum(_mean(one.held for one in samples) for samples in known)
        return any(
            _shows_no_others(samples, total) or _differ(own, samples)
            for at, samples in all_samples.items()
            if at != id and samples
        )


def _shows_no_others(samples: list[Second], total: float) -> bool:
    """Whether NVML shows nothing beside a container's turns and free time; TOTAL: all turns.

    If NVML counted the work of others, the excess would be what they held.
    """
    own = _mean(sample.held for sample in samples)
    might = _mean(sample.held + sample.free for sample in samples)
    excess = _mean(sample.used for sample in samples) - might
    return min(might, total - own) > MARGIN and excess <= min(MARGIN, (total - own) / 3)


def _differ(one: list[Second], other: list[Second]) -> bool:
    """Whether one figure is the larger one by far, in nearly all seconds in which both can work."""
    gaps = [
        mine.used - others.used
        for mine, others in zip(one, other)
        if min(mine.held + mine.free, others.held + others.free) > IDLE
    ]
    larger = sum(gap > IDLE for gap in gaps), sum(gap < -IDLE for gap in gaps)
    return len(gaps) > POLLS / 2 and max(larger) >= NEARLY_ALL * len(gaps)


def _mean(values: Iterable[float]) -> float:
    listed = list(values)
    return sum(listed) / len(listed)
