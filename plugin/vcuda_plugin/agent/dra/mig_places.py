"""GPUs in MIG mode as a device for each place of a GPU instance. Pure: no I/O.

kube-scheduler allocates a place, and the node creates the instance there. Places exclude each other
by counters: a GPU has one of each memory slice, and its compute slices. The smallest profiles come
first, so that a claim for an amount gets the smallest that holds it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence

from vcuda_hook.claims.dra_names import CORES, MEMORY, TYPE_PLACE
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Layout, Profile
from vcuda_oci.placement import mig
from vcuda_oci.placement.mig import Place

from ...kube.api import Object
from ..gpus.inventory import Inventory
from . import devices

_COMPUTE = "compute"


def devices_of(gpu: Gpu, device: Object, seen: Inventory) -> Iterator[Object]:
    """The devices of one GPU. device: as it would be if it were not in MIG mode."""
    layout = _layout(gpu, seen)
    for place in mig.all_places(layout):
        profile, share = place.profile, share_of(place, layout.profiles)
        attributes = {
            **device["attributes"],
            "type": {"string": TYPE_PLACE},
            "profile": {"string": profile.name},
        }
        slices = {
            f"slice-{at}": {"value": "1"} for at in range(place.start, place.start + profile.width)
        }
        counters = {_COMPUTE: {"value": str(profile.slices)}, **slices}
        found: Object = {
            "name": name_of(place),
            "attributes": attributes,
            "capacity": {
                CORES: {"value": str(share.core_percent)},
                MEMORY: {"value": devices.quantity(share.memory_bytes)},
            },
            "consumesCounters": [
                {"counterSet": devices.name_of(gpu.uuid), "counters": counters},
            ],
        }
        if "taints" in device:
            found["taints"] = device["taints"]
        yield found


def counters_of(gpu: Gpu, seen: Inventory) -> Object:
    """What all places of a GPU consume together."""
    layout = _layout(gpu, seen)
    width = max(place.start + place.profile.width for place in mig.all_places(layout))
    slices = {f"slice-{at}": {"value": "1"} for at in range(width)}
    return {_COMPUTE: {"value": str(layout.slices)}, **slices}


def name_of(place: Place) -> str:
    """Such as "gpu-5f1c…-1g-10gb-6"."""
    profile = re.sub(r"[^a-z0-9]+", "-", place.profile.name.lower()).strip("-")
    return devices.name_of(place.uuid, f"-{profile}-{place.start}")


def names_of(gpu: Gpu, seen: Inventory) -> list[str]:
    """The names of a GPU's devices."""
    return [name_of(place) for place in mig.all_places(_layout(gpu, seen))]


def places_of(layouts: Sequence[Layout]) -> dict[str, tuple[Place, GpuShare]]:
    """Each place and what a claim has of the GPU there, by the device's name."""
    return {
        name_of(place): (place, share_of(place, layout.profiles))
        for layout in layouts
        for place in mig.all_places(layout)
    }


def share_of(place: Place, profiles: Sequence[Profile]) -> GpuShare:
    profile = place.profile
    return GpuShare(place.uuid, profile.memory_bytes, mig.core_percent(profiles, profile))


def _layout(gpu: Gpu, seen: Inventory) -> Layout:
    return Layout(gpu.uuid, 0, seen.profiles.get(gpu.uuid, ()), ())
