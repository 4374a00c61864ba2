"""The ResourceSlices of one node's pool, and the writes that make them so. Pure: no I/O.

A scheduler uses a pool only if every slice of its newest generation is there: after any change all
slices get a new generation, one above the highest that exists. A change that was cut short by a
kill leaves slices of two generations, so the next agent writes all of them again. What was written
is recognised by a digest in an annotation: the API server changes fields, and drops those of
feature gates that it has not. Source: Kubernetes 1.34 and 1.36, resource.k8s.io/v1, "ResourcePool",
"ResourceSlice"; pkg/registry/resource/resourceslice/strategy.go, "dropDisabled…".
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vcuda_hook.claims.dra_names import DRIVER

from ...kube.api import Object

API_VERSION = "resource.k8s.io/v1"
PATH = "/apis/resource.k8s.io/v1/resourceslices"
DIGEST = f"{DRIVER}/digest"
# Of devices with taints. Source: ResourceSliceMaxDevicesWithTaintsOrConsumesCounters.
MOST_DEVICES = 64
MOST_COUNTER_SETS = 8
_MOST_NAME_LETTERS = 253
# The feature gate of each field of a device, and what follows where an API server drops it.
GATED = {
    "allowMultipleAllocations": (
        "DRAConsumableCapacity",
        "a claim gets a whole GPU, whatever it asks for",
    ),
    "consumesCounters": (
        "DRAPartitionableDevices",
        "kube-scheduler does not keep apart the devices of one GPU that exclude each other",
    ),
    "taints": ("DRADeviceTaints", "pods may be placed on unhealthy and drained GPUs"),
}


class Write(NamedTuple):
    """A call of the API. method: POST, PATCH or DELETE. body: None for DELETE."""

    method: str
    path: str
    body: Object | None


def name_of(node: str, part: str) -> str:
    """The name of a node's slice; slices of different nodes have different names."""
    end = f"-{DRIVER}-{part}"
    if len(node) + len(end) > _MOST_NAME_LETTERS:
        node = hashlib.sha256(node.encode()).hexdigest()[:32]
    return node + end


def writes(
    node: str,
    node_uid: str,
    devices: Sequence[Object],
    existing: Mapping[str, Object],
    counter_sets: Sequence[Object] = (),
    anew: bool = False,
) -> list[Write]:
    """The calls that make the pool consist of exactly these devices; none if it already does.

    anew: write fields again that an API server has dropped; it may have their gates now.
    node_uid: of the node's object, the slices' owner; "": unknown. existing: this driver's slices
    of the node, by name. counter_sets: what the devices consume; they need slices of their own.
    Without devices there is no slice.
    """
    parts = {
        **_parts(node, "", "devices", devices, MOST_DEVICES),
        **_parts(node, "counters-", "sharedCounters", counter_sets, MOST_COUNTER_SETS),
    }
    whole = json.dumps([*devices, *counter_sets], sort_keys=True)
    digest = hashlib.sha256(whole.encode()).hexdigest()[:32]
    if _is_right(existing, parts, digest) and not (anew and dropped(devices, existing.values())):
        return []
    generation = 1 + max([0, *map(_generation, existing.values())])
    pool = {"name": node, "generation": generation, "resourceSliceCount": len(parts)}
    found: list[Write] = []
    for name, part in parts.items():
        metadata: Object = {"annotations": {DIGEST: digest}}
        spec = {"pool": pool, **part}
        if name in existing:
            # Another writer's change meanwhile is answered with 409.
            metadata["resourceVersion"] = existing[name]["metadata"].get("resourceVersion")
            found.append(Write("PATCH", f"{PATH}/{name}", {"metadata": metadata, "spec": spec}))
            continue
        metadata["name"] = name
        if node_uid:
            owner = {"apiVersion": "v1", "kind": "Node", "name": node, "uid": node_uid}
            metadata["ownerReferences"] = [{**owner, "controller": True}]
        tree = {"apiVersion": API_VERSION, "kind": "ResourceSlice", "metadata": metadata}
        tree["spec"] = {"driver": DRIVER, "nodeName": node, **spec}
        found.append(Write("POST", PATH, tree))
    others = sorted(set(existing) - set(parts))
    return found + [Write("DELETE", f"{PATH}/{name}", None) for name in others]


def dropped(devices: Sequence[Object], existing: Iterable[Object]) -> list[str]:
    """The fields of these devices that none of the existing slices has, of those in GATED."""
    shown = [each for one in existing for each in (one.get("spec") or {}).get("devices") or ()]
    return [
        field
        for field in GATED
        if any(field in each for each in devices) and not any(field in each for each in shown)
    ]


def _parts(
    node: str, kind: str, field: str, items: Sequence[Object], most: int
) -> dict[str, Object]:
    """The field of each slice of one kind, by the slice's name."""
    return {
        name_of(node, f"{kind}{at // most}"): {field: list(items[at : at + most])}
        for at in range(0, len(items), most)
    }


def _is_right(existing: Mapping[str, Object], parts: Mapping[str, Object], digest: str) -> bool:
    if set(existing) != set(parts):
        return False
    for name, part in parts.items():
        spec, about = existing[name].get("spec") or {}, existing[name].get("metadata") or {}
        shown = [device.get("name") for device in spec.get("devices") or ()]
        pool = spec.get("pool") or {}
        if (
            (about.get("annotations") or {}).get(DIGEST) != digest
            or shown != [device["name"] for device in part.get("devices", ())]
            or pool.get("resourceSliceCount") != len(parts)
        ):
            return False
    return len({_generation(each) for each in existing.values()}) < 2


def _generation(each: Object) -> int:
    found = ((each.get("spec") or {}).get("pool") or {}).get("generation")
    return found if type(found) is int else 0
