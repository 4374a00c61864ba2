"""Random sequences of MIG instances that come and go, and whether all of them can be placed."""

from __future__ import annotations

import random
from collections.abc import Sequence

from vcuda_oci.model.mig import Layout, Profile
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.placement.mig import choose

# A number that comes with the profile's position, or goes with None.
Events = list[tuple[int, "int | None"]]


def random_sequence(chance: random.Random, kinds: int, length: int) -> Events:
    """Small profiles come more often, as shares do; four of ten events end an instance."""
    events: Events = []
    live: list[int] = []
    for number in range(length):
        if live and chance.random() < 0.4:
            gone = live.pop(chance.randrange(len(live)))
            events.append((gone, None))
        else:
            weights = [2.0**-at for at in range(kinds)]
            events.append((number, chance.choices(range(kinds), weights)[0]))
            live.append(number)
    return events


def optimum_fits(events: Events, kinds: Sequence[Profile], gpus: int, tries: int = 10_000) -> bool:
    """Whether some choice of places, made with the whole sequence known, places all.

    tries: events that the search may look at; if it has found no end by then, True.
    """
    looked_at = 0
    if _more_than_there_is(events, kinds, gpus):
        return False

    def search(at: int, used: tuple[int, ...], held: dict[int, tuple[int, int]]) -> bool:
        nonlocal looked_at
        looked_at += 1
        if at == len(events) or looked_at > tries:
            return True
        number, kind = events[at]
        if kind is None:
            gpu, bits = held[number]
            less = (*used[:gpu], used[gpu] & ~bits, *used[gpu + 1 :])
            return search(at + 1, less, held)
        seen = set()
        for gpu in range(gpus):
            for start in kinds[kind].starts:
                bits = kinds[kind].bits(start)
                if used[gpu] & bits or (used[gpu], start) in seen:
                    continue
                # A GPU that is equally full, with no instance yet, is the same GPU.
                if not used[gpu]:
                    seen.add((0, start))
                more = (*used[:gpu], used[gpu] | bits, *used[gpu + 1 :])
                if search(at + 1, more, {**held, number: (gpu, bits)}):
                    return True
        return False

    return search(0, (0,) * gpus, {})


def _more_than_there_is(events: Events, kinds: Sequence[Profile], gpus: int) -> bool:
    """Whether at some moment the instances have more slices than the GPUs."""
    slices = max(kind.slices for kind in kinds)
    width = max(kind.width for kind in kinds)
    live: dict[int, Profile] = {}
    for number, kind in events:
        if kind is None:
            del live[number]
        else:
            live[number] = kinds[kind]
        if sum(one.slices for one in live.values()) > gpus * slices:
            return True
        if sum(one.width for one in live.values()) > gpus * width:
            return True
    return False


def ours_fits(events: Events, layouts: Sequence[Layout]) -> bool:
    """Whether `choose`, which knows no future, places all. An event asks for exactly a profile."""
    gpus = {layout.uuid: layout for layout in layouts}
    kinds = layouts[0].profiles
    held: dict[int, tuple[str, tuple[int, int, int]]] = {}
    for number, kind in events:
        if kind is None:
            uuid, one = held.pop(number)
            left = list(gpus[uuid].taken)
            left.remove(one)
            gpus[uuid] = gpus[uuid].replaced(taken=tuple(left))
            continue
        wanted = kinds[kind]
        # The smallest profile that holds this much is the profile itself.
        core = wanted.slices * 100 // layouts[0].slices
        answer = choose(list(gpus.values()), core, wanted.memory_bytes)
        if isinstance(answer, Refused):
            return False
        one = (answer.profile.id, answer.start, answer.profile.width)
        gpus[answer.uuid] = gpus[answer.uuid].replaced(taken=(*gpus[answer.uuid].taken, one))
        held[number] = (answer.uuid, one)
    return True
