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

from collections.abc import Iterator, Sequence

from vcuda_hook.claims.dra_names import MEMORY
from vcuda_oci.model.gpu import Gpu

from ...kube.api import Object
from ..gpus.inventory import Inventory
from . import devices, mig_places

# The counter of a GPU that is in turns or under MPS.
SHARING = "sharing"


def partitioned(offered: Sequence[Object], seen: Inventory) -> tuple[list[Object], list[Object]]:
    """The devices with what they consume, and the counter sets in the order of their names.

    A MIG device of a GPU that is not known consumes nothing.
    """
    sets = {devices.name_of(uuid): {MEMORY: _counter(size)} for uuid, size in seen.divided.items()}
    parts = {
        devices.name_of(gpu.uuid): (devices.name_of(gpu.parent), {MEMORY: _counter(size)})
        for gpu, size in _sizes(seen)
        if gpu.parent in seen.divided
    }

    def with_counters(device: Object) -> Object:
        if device["name"] not in parts:
            return device
        name, counters = parts[device["name"]]
        return {**device, "consumesCounters": [{"counterSet": name, "counters": counters}]}

    divided = {devices.name_of(gpu.uuid): gpu for gpu in seen.gpus if gpu.divided}
    made: list[Object] = []
    for device in offered:
        if gpu := divided.get(device["name"]):
            made += mig_places.devices_of(gpu, device, seen)
            sets[device["name"]] = mig_places.counters_of(gpu, seen)
            continue
        made.append(device)
        if device["name"].endswith(devices.MPS_END):
            name = device["name"].removesuffix(devices.MPS_END)
            sets[name] = {SHARING: {"value": "1"}}
            parts[name] = parts[device["name"]] = name, sets[name]
    used = sorted({*divided, *(name for name, _ in parts.values())})
    return (
        [with_counters(device) for device in made],
        [{"name": name, "counters": sets[name]} for name in used],
    )


def _sizes(seen: Inventory) -> Iterator[tuple[Gpu, int]]:
    """Each MIG device, and its part of its GPU instance's memory in bytes."""
    instances = [(gpu.parent, gpu.mig[1]) for gpu in seen.gpus if gpu.mig]
    for gpu in seen.gpus:
        if gpu.mig:
            yield gpu, gpu.memory_bytes // instances.count((gpu.parent, gpu.mig[1]))


def _counter(size: int) -> Object:
    return {"value": devices.quantity(size)}
