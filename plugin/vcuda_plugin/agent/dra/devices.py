"""The devices of a node as Kubernetes sees them: attributes, capacities, taints. Pure: no I/O.

kube-scheduler takes the first device with enough capacity left, in the order of the slice, so the
order of the GPUs never changes and shares pack. Source: Kubernetes 1.36, resource.k8s.io/v1,
"Device"; pkg/apis/resource/validation.
"""

from __future__ import annotations

import re
from collections.abc import Mapping

from vcuda_hook.claims.dra_names import (
    CORES,
    DRIVER,
    MEMORY,
    MEMORY_STEP_BYTES,
    TYPE_GPU,
    TYPE_MIG,
    TYPE_MPS,
)
from vcuda_oci.model import topology
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.sizes import LEAST_SHARE_BYTES
from vcuda_oci.placement.rules import Rules

from ...kube.api import Object
from ..gpus import node_labels
from ..gpus.inventory import Inventory

# What the name of a GPU's device for containers under MPS ends with.
MPS_END = "-mps"
UNHEALTHY = f"{DRIVER}/unhealthy"
_MOST_LETTERS = 64  # of an attribute's text
_MOST_NAME_LETTERS = 63
_SUFFIXES = ((1 << 40, "Ti"), (1 << 30, "Gi"), (1 << 20, "Mi"), (1 << 10, "Ki"))


def name_of(uuid: str, end: str = "") -> str:
    """The device's name, a DNS label: "gpu-5f1c…"; of another device of the GPU with this end."""
    most = _MOST_NAME_LETTERS - len(end)
    return re.sub(r"[^a-z0-9]+", "-", uuid.lower()).strip("-")[:most].rstrip("-") + end


def quantity(count: int) -> str:
    """The number as an API server writes it, which changes "16384Mi" to "16Gi"."""
    for size, suffix in _SUFFIXES:
        if count and count % size == 0:
            return f"{count // size}{suffix}"
    return str(count)


def devices(
    seen: Inventory,
    rules: Rules,
    roots: Mapping[str, str] | None = None,
    has_mps: bool = False,
) -> list[Object]:
    """The node's devices in the order of their indexes.

    roots: name of the PCIe root by UUID, of
    GPUs that have one. has_mps: whether containers can be under MPS; each GPU is then a second
    device, for those. A GPU in MIG mode becomes several devices only by `partitions`.
    """
    cliques, found = _cliques(seen), []
    for gpu in sorted(seen.gpus, key=lambda gpu: (gpu.index, gpu.mig or [])):
        more = (roots or {}).get(gpu.uuid, ""), cliques.get(gpu.uuid)
        found.append(_device(gpu, seen, rules, *more))
        if has_mps and not gpu.divided and gpu.mig is None:
            found.append(_under_mps(_device(gpu, seen, rules.once(), *more), gpu))
    return found


def _under_mps(device: Object, gpu: Gpu) -> Object:
    attributes = {**device["attributes"], "type": {"string": TYPE_MPS}}
    return {**device, "name": name_of(gpu.uuid, MPS_END), "attributes": attributes}


def _device(gpu: Gpu, seen: Inventory, rules: Rules, root: str, clique: int | None) -> Object:
    texts = {
        "uuid": gpu.uuid,
        "model": gpu.model,
        "brand": gpu.brand,
        "parentUuid": gpu.parent,
        "type": TYPE_GPU if gpu.mig is None else TYPE_MIG,
        "resource.kubernetes.io/pcieRoot": root,
    }
    numbers = {
        "index": gpu.index,
        "numaNode": seen.numa.get(gpu.uuid),
        "nvlinkClique": clique,
    }
    versions = {
        "driverVersion": seen.driver,
        "cudaVersion": seen.cuda,
        "computeCapability": gpu.arch,
    }
    attributes: Object = {key: {"string": t[:_MOST_LETTERS]} for key, t in texts.items() if t}
    attributes |= {key: {"int": number} for key, number in numbers.items() if number is not None}
    attributes |= {
        key: {"version": found} for key, text in versions.items() if (found := _version(text))
    }
    memory = rules.promised(gpu) // MEMORY_STEP_BYTES * MEMORY_STEP_BYTES
    device: Object = {
        "name": name_of(gpu.uuid),
        "allowMultipleAllocations": True,
        "attributes": attributes,
        "capacity": {
            CORES: _capacity(100, 1, 1),
            MEMORY: _capacity(memory, LEAST_SHARE_BYTES, MEMORY_STEP_BYTES),
        },
    }
    reason = seen.unhealthy.get(gpu.uuid)
    if reason:
        value = node_labels.legal_value(reason) or "yes"
        device["taints"] = [{"key": UNHEALTHY, "value": value, "effect": "NoSchedule"}]
    return device


def _capacity(value: int, least: int, step: int) -> Object:
    """A request that names no amount gets all of it, a whole GPU."""
    valid = {"min": quantity(least), "max": quantity(value), "step": quantity(step)}
    return {
        "value": quantity(value),
        "requestPolicy": {"default": quantity(value), "validRange": valid},
    }


def _version(text: str) -> str:
    """The version in the form of Semantic Versioning 2.0.0, which has no leading zeros; "": none.

    "580.95.05" becomes 580.95.5, and "13.0" becomes 13.0.0.
    """
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9}){0,2}", text, re.ASCII):
        return ""
    parts = [str(int(part)) for part in text.split(".")]
    return ".".join([*parts, "0", "0"][:3])


def _cliques(seen: Inventory) -> dict[str, int]:
    """The number of the group of GPUs joined by NVLink, by UUID, of GPUs that have such links.

    A group's number is the position of its first GPU.
    """
    if seen.distances is None:
        return {}
    count = len(seen.gpus)
    group = list(range(count))
    for one in range(count):
        for other in range(one):
            if topology.is_linked(seen.distances[one][other]):
                old, new = group[one], group[other]
                group = [min(old, new) if each in (old, new) else each for each in group]
    return {gpu.uuid: first for gpu, first in zip(seen.gpus, group) if group.count(first) > 1}
