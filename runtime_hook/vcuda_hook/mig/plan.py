"""What has to change on one GPU for a static layout: pure."""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection
from typing import NamedTuple

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.mig import Layout
from vcuda_oci.placement import mig
from vcuda_oci.placement.mig import Place

from .parted_file import Part

Taken = tuple[int, int, int]  # profile id, start, width


class Plan(NamedTuple):
    """destroy: instances of an earlier layout. create: new ones, in this order. kept: number."""

    destroy: list[Taken]
    create: list[Place]
    kept: int


def check_mode(part: Part, uuid: str, divided: bool) -> None:
    """Raises VcudaError: the GPU is in the other mode, which vcuda never changes."""
    if part.enabled != divided:
        now = "in" if divided else "not in"
        hint = f"run 'nvidia-smi -i {uuid} -mig {int(part.enabled)}'"
        raise VcudaError(f"is {now} MIG mode, and the layout wants the other", uuid, hint)


def plan(part: Part, layout: Layout, ours: Collection[Taken]) -> Plan:
    """part: with MIG mode on. ours: those of layout.taken that an earlier layout made.

    Instances that others made, or containers have, stay; they count where the layout wants such
    ones. Raises VcudaError: the layout does not fit beside them, or has an unknown profile.
    """
    known = {profile.name: profile for profile in layout.profiles}
    for name in part.instances:
        if name not in known:
            what = f"has no MIG profile '{name}'"
            raise VcudaError(what, layout.uuid, f"there is {', '.join(known)}")
    profiles = {profile.id: profile for profile in layout.profiles}
    wanted = Counter({known[name].id: count for name, count in part.instances.items()})
    others = [one for one in layout.taken if one not in ours]
    wanted.subtract(id for id, _, _ in others)
    if any(count < 0 for count in wanted.values()):
        what = "has an instance that the layout has not, and that vcuda did not make for a layout"
        hint = "see 'nvidia-smi mig -lgi'; destroy it, or end the container that has it"
        raise VcudaError(what, layout.uuid, hint)
    for kept in (_kept(ours, wanted), []):  # an instance cannot move: if need be, none is kept
        missing = wanted - Counter(id for id, _, _ in kept)
        new = [profiles[id] for id in missing.elements()]
        found = mig.fill(layout.replaced(taken=(*others, *kept)), new)
        if found is not None:
            return Plan([one for one in ours if one not in kept], found, len(others) + len(kept))
    hint = "see 'nvidia-smi mig -lgi' and 'nvidia-smi mig -lgipp'"
    raise VcudaError("the layout has no place beside what is there", layout.uuid, hint)


def _kept(ours: Collection[Taken], wanted: Counter[int]) -> list[Taken]:
    left, found = Counter(wanted), list[Taken]()
    for one in ours:
        if left[one[0]] > 0:
            left[one[0]] -= 1
            found.append(one)
    return found
