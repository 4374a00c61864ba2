"""Pods with a GPU instance for each container, on GPUs in MIG mode. Pure.

The node reports the places that instances have. Those of pods that it has not created yet are put
where it will put them: by the same function, `placement.mig`. So a pod goes where its profile has a
place, and where the largest profiles keep theirs. Every container of a pod counts at the same time,
init containers too.
"""

from __future__ import annotations

import functools
from collections import Counter
from collections.abc import Mapping, Sequence

from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Layout, Profile
from vcuda_oci.model.request import Part
from vcuda_oci.placement import mig
from vcuda_oci.placement.choose import Refused

from ...kube.node_gpus import NodeGpus
from .place import Placed, holds
from .pod_request import PodAsk

Profiles = Mapping[str, Sequence[Profile]]
_NO_GPU = "no GPU in MIG mode here that is vcuda's to divide"


def place_instances(
    gpus: Sequence[Gpu],
    held: Sequence[GpuShare],
    ended: Sequence[GpuShare],
    ask: PodAsk,
    reported: NodeGpus,
) -> Placed | Refused:
    """Place each container of the pod, the largest first, or return why one has no place.

    gpus: in MIG mode. held: instances of other pods, a share for each. ended: those of pods that
    count as ended.
    """
    by_uuid = {gpu.uuid: gpu for gpu in gpus}
    layouts = {gpu.uuid: _layout(gpu, held, ended, reported) for gpu in gpus}
    found: dict[str, list[GpuShare]] = {}
    taken, kept = [], 1.0
    for each in sorted(ask.containers, key=lambda each: -sum(part.core for part in each.parts)):
        if len(each.parts) != 1 or each.parts[0].core > 100:
            return Refused("a container uses one GPU instance; it asks for more than a GPU")
        (part,) = each.parts
        chosen = _choose(list(layouts.values()), part)
        if isinstance(chosen, Refused):
            return chosen
        before, profile = layouts[chosen.uuid], chosen.profile
        layouts[chosen.uuid] = mig.added(before, profile, chosen.start)
        kept = min(kept, mig.kept(before, layouts[chosen.uuid]))
        taken.append(_share(before, profile))
        memory = _memory(part, by_uuid[chosen.uuid].memory_bytes) or profile.memory_bytes
        found[each.name] = [GpuShare(chosen.uuid, memory, part.core)]
    return Placed({each.name: found[each.name] for each in ask.containers}, taken, kept)


def decided_holds(
    ask: PodAsk, shares: Mapping[str, list[GpuShare]], gpus: Mapping[str, Gpu], profiles: Profiles
) -> list[GpuShare]:
    """What a pod with a decision holds of each GPU; of those in MIG mode a share for each
    instance."""
    instances, others = [], {}
    for each in ask.containers:
        others[each.name] = list[GpuShare]()
        for share in shares[each.name]:
            gpu = gpus[share.uuid]
            table = profiles.get(gpu.uuid, ()) if gpu.divided else ()
            memory = _memory(each.parts[0], gpu.memory_bytes)
            profile = mig.rounded(table, share.core_percent, memory) if table else None
            if profile is None:
                others[each.name].append(share)
            else:
                instances.append(_share(Layout(gpu.uuid, 0, table, ()), profile))
    return [*holds(ask, others), *instances]


def _choose(layouts: Sequence[Layout], part: Part) -> mig.Place | Refused:
    """As `mig.choose`, by the size of the GPUs: a request may be a part of it."""
    answer: mig.Place | Refused = Refused(_NO_GPU)
    for size in dict.fromkeys([layout.memory_bytes for layout in layouts]):
        alike = [layout for layout in layouts if layout.memory_bytes == size]
        asked = part.core, _memory(part, size)
        best: tuple[list[int], mig.Place] | None = None
        for each in alike:
            found = _best_on(each.profiles, each.taken, *asked)
            if found and (best is None or found[0] < best[0]):
                best = found[0], mig.Place(each.uuid, *found[1:])
        if best:
            return best[1]
        answer = mig.choose(alike, *asked)
    return answer


@functools.lru_cache(maxsize=1 << 14)
def _best_on(
    profiles: tuple[Profile, ...], taken: tuple[tuple[int, int, int], ...], core: int, memory: int
) -> tuple[list[int], Profile, int] | None:
    """Remembered: thousands of GPUs have the same instances."""
    return mig.best_on(Layout("", 0, profiles, taken), core, memory)


def _layout(
    gpu: Gpu, held: Sequence[GpuShare], ended: Sequence[GpuShare], reported: NodeGpus
) -> Layout:
    """The GPU as it is when the pods of `held` have their instances and those of `ended` none."""
    there = [(id, start, width) for id, start, width in reported.instances.get(gpu.uuid, ())]
    layout = Layout(gpu.uuid, gpu.memory_bytes, reported.profiles[gpu.uuid], tuple(there))
    held, ended = ([one for one in each if one.uuid == gpu.uuid] for each in (held, ended))
    if not held and not ended:
        return layout
    by_share = {_share(layout, profile): profile for profile in layout.profiles}
    for profile in filter(None, map(by_share.get, ended)):
        same = [place for place in there if place[0] == profile.id]
        there = [place for place in there if place not in same[-1:]]
    layout = layout.replaced(taken=tuple(there))
    created = Counter(id for id, _, _ in there)
    for profile in filter(None, map(by_share.get, held)):
        created[profile.id] -= 1
        start = mig.best_start(layout, profile) if created[profile.id] < 0 else None
        # Without a place the node refuses that pod.
        layout = layout if start is None else mig.added(layout, profile, start)
    return layout


def _share(layout: Layout, profile: Profile) -> GpuShare:
    core = mig.core_percent(layout.profiles, profile)
    return GpuShare(layout.uuid, profile.memory_bytes, core)


def _memory(part: Part, size: int) -> int:
    """As the node reads it: without an amount, whatever a profile with the compute has."""
    if part.memory_percent is not None:
        return size * part.memory_percent // 100
    return part.memory_bytes or 0
