"""Pods with a GPU instance for each container, on GPUs in MIG mode. Pure.

An instance is counted as a share with its profile's memory and part of the compute. That is exact
but for the places: the node may find that no free ones lie together, and refuses the pod then.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping, Sequence

from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Profile
from vcuda_oci.model.request import Part
from vcuda_oci.placement import mig
from vcuda_oci.placement.choose import Refused

from .place import Placed, holds, place
from .pod_request import PodAsk

Profiles = Mapping[str, Sequence[Profile]]
_NO_GPU = "no GPU in MIG mode here that is vcuda's to divide"


def place_instances(
    gpus: Sequence[Gpu], taken: Sequence[GpuShare], ask: PodAsk, order: str, profiles: Profiles
) -> Placed | Refused:
    """As `place.place`. gpus: in MIG mode. profiles: of each, by UUID."""
    answer = Refused(_NO_GPU)
    by_table: dict[tuple[tuple[int, int], ...], list[Gpu]] = {}
    for gpu in gpus:
        key = tuple((each.slices, each.memory_bytes) for each in profiles[gpu.uuid])
        by_table.setdefault(key, []).append(gpu)
    for alike in by_table.values():
        table = profiles[alike[0].uuid]
        as_profiles = _rounded(ask, table, alike[0].memory_bytes)
        if isinstance(as_profiles, Refused):
            answer = as_profiles
            continue
        whole = [Gpu(gpu.uuid, gpu.index, -1, gpu.memory_bytes, gpu.model) for gpu in alike]
        found = place(whole, taken, as_profiles, order)
        if isinstance(found, Refused):
            answer = found
            continue
        asked = {
            each.name: [_as_asked(share, each.parts[0], alike[0])]
            for each in ask.containers
            for share in found.containers[each.name]
        }
        return Placed(asked, found.holds)
    return answer


def decided_holds(
    ask: PodAsk, shares: Mapping[str, list[GpuShare]], gpus: Mapping[str, Gpu], profiles: Profiles
) -> list[GpuShare]:
    """What a pod with a decision holds of each GPU, with instances for those in MIG mode."""
    found = {
        each.name: [
            _counted(share, each.parts[0], gpus[share.uuid], profiles)
            for share in shares[each.name]
        ]
        for each in ask.containers
    }
    return holds(ask, found)


def _counted(share: GpuShare, part: Part, gpu: Gpu, profiles: Profiles) -> GpuShare:
    table = profiles.get(gpu.uuid, ()) if gpu.divided else ()
    memory = _memory(part, gpu.memory_bytes)
    profile = mig.rounded(table, share.core_percent, memory) if table else None
    if profile is None:
        return share
    return GpuShare(share.uuid, profile.memory_bytes, mig.core_percent(table, profile))


def _rounded(ask: PodAsk, table: Sequence[Profile], size: int) -> PodAsk | Refused:
    """The request with the amounts of whole profiles."""
    containers = []
    for each in ask.containers:
        if len(each.parts) != 1 or each.parts[0].core > 100:
            return Refused("a container uses one GPU instance; it asks for more than a GPU")
        (part,) = each.parts
        profile = mig.rounded(table, part.core, _memory(part, size))
        if profile is None:
            return Refused(f"no MIG profile holds {part.core} % with its memory")
        share = Part(mig.core_percent(table, profile), profile.memory_bytes)
        containers.append(dataclasses.replace(each, parts=(share,)))
    return dataclasses.replace(ask, containers=tuple(containers))


def _memory(part: Part, size: int) -> int:
    """As the node reads it: without an amount, whatever a profile with the compute has."""
    if part.memory_percent is not None:
        return size * part.memory_percent // 100
    return part.memory_bytes or 0


def _as_asked(share: GpuShare, part: Part, gpu: Gpu) -> GpuShare:
    return GpuShare(share.uuid, _memory(part, gpu.memory_bytes) or share.memory_bytes, part.core)
