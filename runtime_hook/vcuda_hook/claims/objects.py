"""Claims and devices as values, read from the API's objects. Nothing here raises: a wrong object is
read as None.

Source: Kubernetes 1.36, resource.k8s.io/v1, "ResourceClaim", "ResourceSlice".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.model.sizes import gib

from .dra_names import CORES, DRIVER, FENCED, MEMORY, SHARES, TYPE_GPU, WHOLE
from .quantity import whole

# A claim that asks for one of these classes is ours, even before it is allocated.
CLASSES = (SHARES, WHOLE, *FENCED.values())
_WHOLE_CORES = 100
_MOST_COUNT = 64

_Object = Mapping[str, Any]


class Device(NamedTuple):
    """A device of a node. uuid, number: UUID and index of the GPU or MIG device. unusable: its
    taint, or "".
    """

    node: str
    name: str
    kind: str
    uuid: str
    number: int
    model: str
    core_percent: int
    memory_bytes: int
    unusable: str


class Held(NamedTuple):
    """What a claim has of a device. core_percent, memory_bytes: None: all of the device."""

    node: str
    device: str
    core_percent: int | None
    memory_bytes: int | None


class Asked(NamedTuple):
    """One alternative of a request. core_percent, memory_bytes: None: all of the device. is_exact:
    whether the amounts decide; otherwise the claim also selects devices by CEL.
    """

    device_class: str
    times: int
    core_percent: int | None
    memory_bytes: int | None
    is_exact: bool

    def __str__(self) -> str:
        many = "" if self.times == 1 else f"{self.times} times "
        if self.core_percent is None and self.memory_bytes is None:
            return f"{many}a whole GPU"
        core = _WHOLE_CORES if self.core_percent is None else self.core_percent
        memory = "all memory" if self.memory_bytes is None else gib(self.memory_bytes)
        return f"{many}{core} % and {memory}"


class Claim(NamedTuple):
    """pods: the names of the pods that use it, or wait with it. held: None: it waits. asked: the
    alternatives of each request for our devices. distinct: no GPU twice.
    """

    uid: str
    namespace: str
    name: str
    created: str
    pods: tuple[str, ...]
    held: tuple[Held, ...] | None
    asked: tuple[tuple[Asked, ...], ...]
    distinct: bool

    @property
    def text(self) -> str:
        """What it asks for, the first alternative of each request."""
        return ", ".join(str(each[0]) for each in self.asked)


def amounts(one: Held | Asked, device: Device) -> tuple[int, int]:
    """Cores and memory of the device that a claim has, or asks for."""
    core = device.core_percent if one.core_percent is None else one.core_percent
    return core, device.memory_bytes if one.memory_bytes is None else one.memory_bytes


def claim_of(item: _Object) -> Claim | None:
    """None: it asks for nothing of this driver."""
    about, spec, status = (_mapping(item.get(key)) for key in ("metadata", "spec", "status"))
    wanted = _mapping(spec.get("devices"))
    asked = tuple(found for each in _listed(wanted, "requests") if (found := _asked(each)))
    allocation = status.get("allocation")
    held = None
    if isinstance(allocation, dict):
        held = tuple(_held(_mapping(allocation.get("devices"))))
        if not held:
            return None
    elif not asked:
        return None
    pods = [each for each in _listed(status, "reservedFor") if each.get("resource") == "pods"]
    pods = pods or [each for each in _listed(about, "ownerReferences") if each.get("kind") == "Pod"]
    return Claim(
        str(about.get("uid", "")),
        str(about.get("namespace", "")),
        str(about.get("name", "")),
        str(about.get("creationTimestamp") or ""),
        tuple(str(each.get("name")) for each in pods),
        held,
        asked,
        any(each.get("distinctAttribute") for each in _listed(wanted, "constraints")),
    )


def devices_of(item: _Object) -> list[Device]:
    """The devices of a slice, in its order."""
    spec = _mapping(item.get("spec"))
    node = str(spec.get("nodeName") or "")
    if spec.get("driver") != DRIVER or not node:
        return []
    return [_device(node, each) for each in _listed(spec, "devices")]


def _device(node: str, device: _Object) -> Device:
    attributes, capacity = (_mapping(device.get(key)) for key in ("attributes", "capacity"))

    def attribute(name: str, kind: str) -> Any:
        return _mapping(attributes.get(name)).get(kind)

    taints = [str(each.get("value") or each.get("key")) for each in _listed(device, "taints")]
    index = attribute("index", "int")
    core, memory = (whole(_mapping(capacity.get(key)).get("value")) for key in (CORES, MEMORY))
    return Device(
        node,
        str(device.get("name")),
        str(attribute("type", "string") or TYPE_GPU),
        str(attribute("uuid", "string") or ""),
        index if type(index) is int else -1,
        str(attribute("model", "string") or ""),
        core or 0,
        memory or 0,
        ", ".join(taints),
    )


def _held(devices: _Object) -> Iterator[Held]:
    for each in _listed(devices, "results"):
        if each.get("driver") == DRIVER:
            consumed = _mapping(each.get("consumedCapacity"))
            core, memory = (whole(consumed.get(key)) for key in (CORES, MEMORY))
            # Without amounts the device belongs to this claim alone.
            yield Held(str(each.get("pool")), str(each.get("device")), core, memory)


def _asked(request: _Object) -> tuple[Asked, ...]:
    """The alternatives that are of our classes."""
    exactly = request.get("exactly")
    each = [exactly] if isinstance(exactly, dict) else _listed(request, "firstAvailable")
    return tuple(_alternative(one) for one in each if one.get("deviceClassName") in CLASSES)


def _alternative(one: _Object) -> Asked:
    amounts = _mapping(_mapping(one.get("capacity")).get("requests"))
    count = one.get("count")
    return Asked(
        str(one["deviceClassName"]),
        min(count, _MOST_COUNT) if type(count) is int and count > 0 else 1,
        whole(amounts.get(CORES)),
        whole(amounts.get(MEMORY)),
        not one.get("selectors"),
    )


def _mapping(value: Any) -> _Object:
    return value if isinstance(value, dict) else {}


def _listed(tree: _Object, key: str) -> Sequence[dict[str, Any]]:
    found = tree.get(key)
    return [each for each in found if isinstance(each, dict)] if isinstance(found, list) else []
