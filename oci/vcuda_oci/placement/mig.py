"""Choose the MIG profile that holds a request, and its place on a GPU: pure.

A GPU in MIG mode has memory slices, and a profile may stand at a few of their positions only. An
instance cannot move, so the place decides what fits later: it is taken where it leaves room for the
largest profiles.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from ..model.mig import Layout, Profile
from ..model.record import Record
from ..model.sizes import gib
from .eligible import Refused

_HINT = "ask for less, end a container with an instance, or use isolation turns"


class Place(Record):
    """Where an instance goes. uuid: of the GPU."""

    def __init__(self, uuid: str, profile: Profile, start: int) -> None:
        self.uuid, self.profile, self.start = uuid, profile, start


def rounded(profiles: Sequence[Profile], core: int, memory_bytes: int) -> Profile | None:
    """The smallest profile that holds both; None: none does. Their places are not looked at."""
    slices = max([profile.slices for profile in profiles], default=0)
    found = holding(Layout("", 0, profiles, ()), core, memory_bytes) if slices else []
    return found[0] if found else None


def core_percent(profiles: Sequence[Profile], profile: Profile) -> int:
    """The compute that one instance counts as, in percent of its GPU, rounded down: several
    exceed 100 together only if they need more slices than the GPU has."""
    return profile.slices * 100 // max(one.slices for one in profiles)


def holding(layout: Layout, core: int, memory_bytes: int) -> list[Profile]:
    """The profiles that hold `core` percent of the GPU and the memory, the smallest first."""
    return sorted(
        [
            profile
            for profile in layout.profiles
            if profile.slices * 100 >= core * layout.slices and profile.memory_bytes >= memory_bytes
        ],
        key=lambda profile: (profile.width, profile.slices, profile.memory_bytes, profile.id),
    )


def choose(layouts: Sequence[Layout], core: int, memory_bytes: int) -> Place | Refused:
    """The place for `core` percent and `memory_bytes` (0: whatever a profile with `core` has).

    Of the smallest profiles that hold both and have room: the place that takes the fewest places
    from the largest profile, then from the next; equal ones by the order of the GPUs.
    """
    best: tuple[list[int], Place] | None = None
    for layout in layouts:
        found = best_on(layout, core, memory_bytes)
        if found and (best is None or found[0] < best[0]):
            best = found[0], Place(layout.uuid, *found[1:])
    return best[1] if best else Refused(_why(layouts, core, memory_bytes), _HINT)


def best_on(layout: Layout, core: int, memory_bytes: int) -> tuple[list[int], Profile, int] | None:
    """What `choose` has for one GPU: cost, profile and start; of all GPUs the least cost counts."""
    for profile in holding(layout, core, memory_bytes):
        # A larger profile only where the smaller ones have no room on this GPU.
        if (start := best_start(layout, profile)) is not None:
            cost = [profile.width, profile.slices, *_loss(layout, profile, start)]
            return cost, profile, start
    return None


def at(layouts: Sequence[Layout], place: Place) -> Place | Refused:
    """`place`, if it is free."""
    for layout in layouts:
        if layout.uuid == place.uuid and place.start in _free_starts(layout, place.profile):
            return place
    what = f"the place of {place.profile.name} at {place.start} of {place.uuid} is taken"
    return Refused(what, "see 'nvidia-smi mig -lgi'")


def added(layout: Layout, profile: Profile, start: int) -> Layout:
    """The GPU with one more instance."""
    return layout.replaced(taken=(*layout.taken, (profile.id, start, profile.width)))


def best_start(layout: Layout, profile: Profile) -> int | None:
    """The place of an instance that leaves most room for the largest profiles; None: none is
    free."""
    starts = _free_starts(layout, profile)
    return min(starts, key=lambda start: _loss(layout, profile, start)) if starts else None


def kept(before: Layout, after: Layout) -> float:
    """The part of the profiles, counted from the largest, of which as many fit after as before."""
    lost = [room_for(before, one) > room_for(after, one) for one in _from_largest(before)]
    return (lost.index(True) if True in lost else len(lost)) / len(lost)


def fill(layout: Layout, profiles: Sequence[Profile]) -> list[Place] | None:
    """Places for all of the profiles beside what the GPU has; None: there are none."""
    if not profiles:
        return []
    first, *rest = sorted(profiles, key=lambda one: (-one.width, -one.slices, one.id))
    for start in _free_starts(layout, first):
        found = fill(added(layout, first, start), rest)
        if found is not None:
            return [Place(layout.uuid, first, start), *found]
    return None


def all_places(layout: Layout) -> list[Place]:
    """Every place of every profile of the GPU, the smallest first and, of one profile, the place
    that leaves most room."""
    layout = layout.replaced(taken=())
    return [
        Place(layout.uuid, profile, start)
        for profile in holding(layout, 0, 0)
        for start in sorted(profile.starts, key=lambda start: _loss(layout, profile, start))
    ]


def _loss(layout: Layout, profile: Profile, start: int) -> list[int]:
    """How many instances of each profile no longer fit, of the largest profile first."""
    after = added(layout, profile, start)
    return [room_for(layout, one) - room_for(after, one) for one in _from_largest(layout)]


def _from_largest(layout: Layout) -> list[Profile]:
    return sorted(layout.profiles, key=lambda one: (-one.width, -one.slices, one.id))


def room_for(layout: Layout, profile: Profile) -> int:
    """How many more instances of the profile fit at once."""
    used, count = _bits(layout), 0
    for start in sorted(profile.starts):
        if not used & profile.bits(start):
            used |= profile.bits(start)
            count += 1
    return min(count, profile.most - _count(layout, profile))


def _free_starts(layout: Layout, profile: Profile) -> list[int]:
    if _count(layout, profile) >= profile.most:
        return []
    used = _bits(layout)
    return [start for start in profile.starts if not used & profile.bits(start)]


def _count(layout: Layout, profile: Profile) -> int:
    return len([id for id, _, _ in layout.taken if id == profile.id])


def _bits(layout: Layout) -> int:
    bits = 0
    for _, start, width in layout.taken:
        bits |= (1 << width) - 1 << start
    return bits


def _why(layouts: Sequence[Layout], core: int, memory_bytes: int) -> str:
    asked = f"{core} %" + (f" and {gib(memory_bytes)}" if memory_bytes else "")
    if not layouts:
        return "no GPU in MIG mode here"
    wanted = _named(one for layout in layouts for one in holding(layout, core, memory_bytes)[:1])
    if not wanted:
        largest = _named(max(layout.profiles, key=_size) for layout in layouts if layout.profiles)
        return f"no MIG profile holds {asked}; the largest is {largest or 'none'}"
    fitting = [one for layout in layouts for one in layout.profiles if room_for(layout, one)]
    left = max(fitting, key=_size).name if fitting else "none"
    return f"no room for {wanted}, which holds {asked}; the largest that fits is {left}"


def _size(profile: Profile) -> tuple[int, int, int]:
    return profile.width, profile.slices, profile.memory_bytes


def _named(profiles: Iterable[Profile]) -> str:
    return " or ".join(dict.fromkeys([profile.name for profile in profiles]))
