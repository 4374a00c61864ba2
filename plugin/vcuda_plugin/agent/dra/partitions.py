"""Which devices of one GPU exclude each other, as counters that they consume. Pure: no I/O.

A GPU that can be under MPS is two devices, and its one counter goes to the first of them that a
claim gets: kube-scheduler never allocates the other meanwhile. A GPU in MIG mode that is vcuda's to
divide: mig_places.py.

Another GPU in MIG mode is a counter set with its memory. The layout is the administrator's, and its
devices exist side by side, so the counters keep none of them from being allocated: they say which
devices are parts of one GPU, and what of it no device has. kube-scheduler counts a device once,
however many claims share it. Compute instances of one GPU instance have the same memory, so each
consumes an equal part of it. Source: Kubernetes 1.36, resource.k8s.io/v1, "CounterSet"; NVIDIA, MIG
user guide, "Concepts".
"""

from __future__ import annotations

from collections.abc import Sequence

from vcuda_hook.claims.dra_names import MEMORY

from ...kube.api import Object
from ..gpus.inventory import Inventory
from . import devices, mig_places

# The counter of a GPU that is in turns or under MPS.
SHARING = "sharing"


def partitioned(offered: Sequence[Object], seen: Inventory) -> tuple[list[Object], list[Object]]:
    """The devices with what they consume, and the counter sets in the order of their names.

    A MIG device of a GPU that is not known consumes nothing.
    """
    gpus = {devices.name_of(gpu.uuid): gpu for gpu in seen.gpus}
    instances = [(gpu.parent, gpu.mig[1]) for gpu in seen.gpus if gpu.mig]
    names = {device["name"] for device in offered}
    made: list[Object] = []
    sets: dict[str, Object] = {}
    for device in offered:
        name = device["name"].removesuffix(devices.MPS_END)
        gpu = gpus[name]
        if gpu.divided:
            sets[name] = mig_places.counters_of(gpu, seen)
            made += mig_places.devices_of(gpu, device, seen)
        elif gpu.mig and gpu.parent in seen.divided:
            whole = devices.name_of(gpu.parent)
            sets[whole] = _memory(seen.divided[gpu.parent])
            part = gpu.memory_bytes // instances.count((gpu.parent, gpu.mig[1]))
            made.append(_consuming(device, whole, _memory(part)))
        elif name + devices.MPS_END in names:
            sets[name] = {SHARING: {"value": "1"}}
            made.append(_consuming(device, name, sets[name]))
        else:
            made.append(device)
    return made, [{"name": name, "counters": sets[name]} for name in sorted(sets)]


def _consuming(device: Object, counter_set: str, counters: Object) -> Object:
    return {**device, "consumesCounters": [{"counterSet": counter_set, "counters": counters}]}


def _memory(size: int) -> Object:
    return {MEMORY: {"value": devices.quantity(size)}}
