"""Which containers take turns on a GPU that cannot hold all of them. Pure: no I/O.

A container that waits for the GPU gets room from those that rotate: first from those without work,
then from those that have had the GPU for their quantum, the longest first. Containers are served in
the order of their requests, those that rotate after the others. These together never have more
memory than the GPU, so each of them gets its room as soon as enough quanta have ended.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import NamedTuple

from vcuda_hook.suspend.wait_bound import quantum
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.free import full
from vcuda_oci.placement.rules import Rules

# Without work for as long as its swap takes, a container gives way at once; within these bounds.
LEAST_IDLE_SECONDS, IDLE_SECONDS = 0.2, 1.0


class Resident(NamedTuple):
    """A container on its GPUs. since: when it came there. idle: seconds without work. rotates: it
    may be suspended for others. swap: seconds of its last suspend and resume together; 0: unknown.
    """

    id: str
    shares: Sequence[GpuShare]
    since: float
    idle: float
    rotates: bool
    swap: float = 0.0


class Waiting(NamedTuple):
    """A suspended container that asks for its GPUs. asked: when. rotates: as Resident has it."""

    id: str
    shares: Sequence[GpuShare]
    asked: float
    rotates: bool = True


# The GPUs that have no room for a container beside these residents.
_Full = Callable[[Sequence[Resident], Waiting], set[str]]


class Step(NamedTuple):
    """Suspend these, then resume that one. victims may be empty; at: the earliest moment."""

    victims: tuple[str, ...]
    resume: str
    at: float


def next_step(
    now: float,
    gpus: Sequence[Gpu],
    residents: Sequence[Resident],
    waiting: Sequence[Waiting],
    rules: Rules,
    fixed: float = 0.0,
) -> Step | None:
    """The earliest step for a container that no other one on its GPUs comes before; None: none
    waits, or no quantum ever ends that would give one room.

    fixed: seconds of each quantum; 0: by the swaps.
    """
    full_for = partial(_full_for, gpus, rules)
    steps, awaited = [], set[str]()
    for one in sorted(waiting, key=lambda one: (one.rotates, one.asked, one.id)):
        # Room for a later one would be what the earlier one waits for.
        here = gpus_of(one)
        if not awaited & here and (step := _step_for(now, full_for, residents, one, fixed)):
            steps.append(step)
        awaited |= here
    return min(steps, key=lambda step: step.at, default=None)


def _step_for(
    now: float,
    full_for: _Full,
    residents: Sequence[Resident],
    first: Waiting,
    fixed: float,
) -> Step | None:
    left_full = full_for(residents, first)
    if not left_full:
        return Step((), first.id, now)
    rotating = [one for one in residents if one.rotates]
    ends = {one.id: _may_leave(one, now, fixed) for one in rotating}
    chosen: list[Resident] = []
    for one in sorted(rotating, key=lambda one: (ends[one.id], one.since, one.id)):
        if left_full & gpus_of(one):
            chosen.append(one)
            left_full = full_for([each for each in residents if each not in chosen], first)
            if not left_full:
                break
    if left_full:
        return None
    needed = _without_the_needless(full_for, residents, chosen, first)
    return Step(tuple(one.id for one in needed), first.id, max(ends[one.id] for one in needed))


def _may_leave(one: Resident, now: float, fixed: float) -> float:
    if one.idle >= min(max(one.swap or IDLE_SECONDS, LEAST_IDLE_SECONDS), IDLE_SECONDS):
        return now
    held = sum(share.memory_bytes for share in one.shares)
    return max(now, one.since + quantum(held, one.swap, fixed))


def gpus_of(one: Resident | Waiting) -> set[str]:
    """The UUIDs of its GPUs."""
    return {share.uuid for share in one.shares}


def _full_for(
    gpus: Sequence[Gpu], rules: Rules, residents: Sequence[Resident], wanted: Waiting
) -> set[str]:
    """The GPUs that have no room for `wanted` beside the residents."""
    return full(wanted.shares, gpus, [share for one in residents for share in one.shares], rules)


def _without_the_needless(
    full_for: _Full,
    residents: Sequence[Resident],
    chosen: Sequence[Resident],
    first: Waiting,
) -> list[Resident]:
    """Without those that need not leave because larger ones do, the last to leave checked first."""
    needed = list(chosen)
    for one in reversed(chosen):
        others = [each for each in needed if each is not one]
        stay = [each for each in residents if each not in others]
        if not full_for(stay, first):
            needed = others
    return needed
