"""A node's GPUs as one annotation: the agent writes it, the scheduler extender reads it.

``{"gpus": [{"uuid", "index", "model", "memory_bytes", "numa", "unhealthy"}], "distances": [[0]]}``.
parent, mig: only for a MIG device: its GPU's UUID, and its numbers as in vcuda_oci.model.gpu.
profiles: only for a GPU in MIG mode: each profile of GPU instances, as the fields of model.mig's
  Profile. instances: what is taken there, as profile id, first slice, memory slices.
numa: -1 if unknown. unhealthy: the reason; absent while the GPU is healthy. distances: between the
GPUs in the order of "gpus", smaller is nearer (vcuda_oci.model.topology); absent if unknown.
overcommit: how many times the memory is promised; absent for once.
"""

from __future__ import annotations

import functools
import json
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from vcuda_oci.model import topology
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Profile
from vcuda_oci.placement.rules import Rules

_MOST_GPUS, _MOST_PROFILES = 1024, 32
_MOST_SLICES = 64
_PLAIN = Rules()

# First byte of a line to the HTTP process that says why no GPU is listed; others: JSON or empty.
NO_GPU = b"-"


@dataclass(frozen=True)
class NodeGpus:
    """GPUs of a node. gpus: in its order, with minor -1 (unknown). unhealthy: reason by UUID.
    profiles: of each GPU in MIG mode, by UUID. instances: the places that are taken there, as
    model.mig.Layout has them."""

    gpus: list[Gpu]
    numa: dict[str, int] = field(default_factory=dict)
    unhealthy: dict[str, str] = field(default_factory=dict)
    distances: list[list[int]] | None = None
    overcommit: float = 1
    profiles: dict[str, Sequence[Profile]] = field(default_factory=dict)
    instances: dict[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    def rules(self, cluster: Rules = _PLAIN) -> Rules:
        """The rules here. cluster: those of all nodes, of which a node has some of its own."""
        return cluster.replaced(overcommit=self.overcommit)

    def between(self, gpus: Sequence[Gpu]) -> list[list[int]] | None:
        """Return the distances between some of the GPUs, in the order of `gpus`."""
        return topology.between(gpus, self.gpus, self.distances)

    def dump(self) -> str:
        gpus: list[dict[str, Any]] = []
        for gpu in self.gpus:
            entry: dict[str, Any] = {"uuid": gpu.uuid, "index": gpu.index, "model": gpu.model}
            entry["memory_bytes"] = gpu.memory_bytes
            entry["numa"] = self.numa.get(gpu.uuid, -1)
            if gpu.mig:
                entry["parent"], entry["mig"] = gpu.parent, gpu.mig
            if gpu.uuid in self.profiles:
                entry["profiles"] = [
                    [p.id, p.name, p.slices, p.memory_bytes, p.starts, p.width, p.most]
                    for p in self.profiles[gpu.uuid]
                ]
                entry["instances"] = self.instances.get(gpu.uuid, [])
            if gpu.uuid in self.unhealthy:
                entry["unhealthy"] = self.unhealthy[gpu.uuid]
            gpus.append(entry)
        tree: dict[str, Any] = {"gpus": gpus}
        if self.distances is not None:
            tree["distances"] = self.distances
        if self.overcommit != 1:
            tree["overcommit"] = self.overcommit
        return json.dumps(tree, separators=(",", ":"))


def parse(text: str) -> NodeGpus:
    """Parse what `dump` writes. Raises ValueError."""
    try:
        tree = json.loads(text)
        gpus, numa, unhealthy = [], {}, {}
        profiles: dict[str, Sequence[Profile]] = {}
        instances: dict[str, Sequence[Sequence[int]]] = {}
        for entry in tree["gpus"][:_MOST_GPUS]:
            mig = [int(number) for number in entry.get("mig", ())]
            gpu = Gpu(
                str(entry["uuid"]),
                int(entry["index"]),
                -1,
                int(entry["memory_bytes"]),
                entry["model"],
                divided="profiles" in entry,
                parent=str(entry.get("parent", "")),
                mig=mig or None,
            )
            if gpu.divided:
                profiles[gpu.uuid] = _profiles(entry)
                instances[gpu.uuid] = list(map(_place, entry["instances"][:_MOST_SLICES]))
            gpus.append(gpu)
            if entry.get("numa", -1) >= 0:
                numa[gpu.uuid] = int(entry["numa"])
            if "unhealthy" in entry:
                unhealthy[gpu.uuid] = str(entry["unhealthy"])
        distances = tree.get("distances")
        if not (distances is None or topology.are_distances(distances, len(gpus))):
            raise ValueError("distances that fit no GPUs")
        overcommit = float(tree.get("overcommit", 1))
        if not (len({gpu.uuid for gpu in gpus}) == len(gpus) and 1 <= overcommit <= 100):
            raise ValueError("a GPU twice, or an overcommit out of range")
        return NodeGpus(gpus, numa, unhealthy, distances, overcommit, profiles, instances)
    except (KeyError, TypeError, AttributeError, RecursionError, OverflowError) as error:
        raise ValueError(f"not a list of GPUs: {error!r}") from error


def _profiles(entry: Any) -> tuple[Profile, ...]:
    """Raises ValueError."""
    found = []
    for id, name, slices, size, starts, width, most in entry["profiles"][:_MOST_PROFILES]:
        first = list(map(int, starts))
        one = Profile(int(id), str(name), int(slices), int(size), first, int(width), int(most))
        _check(one.width, one.most, one.slices - 1, *one.starts)
        found.append(one)
    return _shared(tuple(found))


@functools.lru_cache(maxsize=256)
def _shared(profiles: tuple[Profile, ...]) -> tuple[Profile, ...]:
    """The same object for all GPUs of a model: it takes less memory, and is compared at once."""
    return profiles


def _place(fields: Any) -> tuple[int, int, int]:
    id, start, width = map(int, fields)
    _check(start, width)
    return id, start, width


def _check(*numbers: int) -> None:
    """Raises ValueError. Places are shifts: they are bounded, as the text comes from the API."""
    if not all(0 <= one < _MOST_SLICES for one in numbers):
        raise ValueError("not the place of a GPU instance")
