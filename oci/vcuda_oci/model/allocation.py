"""The record of an allocation: one small JSON file that root can read with ``cat``."""

from __future__ import annotations

from . import jsontree, policies
from .durations import MOST_SECONDS
from .record import Record
from .sizes import gib

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .suspension import Suspension

VERSION = 1
_END_OF_TIME = 1 << 40  # and it keeps infinity out
# In a record's `pod`, if the node has chosen the GPU: no scheduler has decided on one.
PLACED, NODE = "placed", "node"


class GpuShare(Record):
    """One GPU's part of an allocation."""

    def __init__(
        self,
        uuid: str,
        memory_bytes: int,
        core_percent: int,
        policy: str = policies.FIXED,
        core_ceiling_percent: int | None = None,
        weight: int | None = None,
        priority: int = 0,
        managed: bool = False,
        latency: str = policies.NORMAL,
        rotates: bool = False,
    ) -> None:
        self.uuid = uuid  # as NVML prints it: "GPU-5f1c…"
        self.memory_bytes = memory_bytes  # hard limit
        self.core_percent = core_percent  # 1..100 of the GPU's time, reserved
        self.policy = policy
        # The most that it ever gets, and its weight when unused time is divided.
        self.core_ceiling_percent = (
            core_percent if core_ceiling_percent is None else core_ceiling_percent
        )
        self.weight = core_percent if weight is None else weight
        self.priority = priority
        self.managed = managed  # promised under overcommit: the driver may move it to the host
        self.latency = latency
        # Promised under overcommit, or in the room of suspended containers: the container leaves
        # the GPU while others have their turns.
        self.rotates = rotates

    @property
    def amounts(self) -> str:
        return f"{self.core_percent} % and {gib(self.memory_bytes)} of {self.uuid}"

    def __str__(self) -> str:
        terms = policies.describe(
            self.policy, self.core_ceiling_percent, self.weight, self.priority, self.latency
        )
        return f"{self.amounts}, {terms}"


class Allocation(Record):
    """Shares of GPUs that one owner holds.

    id: file name of the record and of the container's folder of pages.
    container_id, runtime: how to ask the low-level runtime whether the container lives: its
    command line up to the verb, and the container's id; both empty for a named slice, which no
    container holds: it stays until it is removed by its name. sandbox_id: "" outside Kubernetes.
    claimant: pid and start time (clock ticks since boot) of the process that claimed; it becomes
    the low-level runtime by exec, so it lives until the container exists.
    created: seconds since 1970. becoming: the shares of a change under way; what is held meanwhile
    is `shares` (resize.py). engine: where the engine keeps the container's name and image
    (engine_name.py). suspension: None: its processes use the GPUs. idle_suspend: seconds without
    GPU work after which it is suspended; 0: never. isolation: "mig": its share is all of a MIG
    device that was made for it (instances.py); "mps": it shares its GPU with others under MPS
    (mps_folder.py); else "". nodes_left: UUIDs of GPUs that it has no share of, but may still open
    since a move was killed: the next verb that moves containers takes their nodes away. pod: as
    claim.pod_of; {} outside Kubernetes. partition: under MPS, which of `partitions` it has for
    itself, from 1 on; 0: its GPU has none. partitions: percent of the multiprocessors of each.
    """

    def __init__(
        self,
        id: str,
        shares: list[GpuShare],
        request: dict[str, Any],
        container_id: str,
        runtime: list[str],
        claimant: list[int],
        created: float,
        pod: dict[str, str],
        becoming: list[GpuShare] | None = None,
        engine: dict[str, str] | None = None,
        suspension: Suspension | None = None,
        idle_suspend: int = 0,
        isolation: str = "",
        nodes_left: list[str] | None = None,
        partition: int = 0,
        partitions: list[int] | None = None,
    ) -> None:
        self.id, self.shares, self.request = id, shares, request
        self.container_id, self.runtime, self.claimant = container_id, runtime, claimant
        self.created, self.pod, self.becoming = created, pod, becoming
        self.engine, self.suspension = engine or {}, suspension
        self.idle_suspend, self.isolation = idle_suspend, isolation
        self.nodes_left = nodes_left or []
        self.partition, self.partitions = partition, partitions or []

    @property
    def is_named_slice(self) -> bool:
        return not self.runtime

    @property
    def rotates(self) -> bool:
        """Whether the container leaves its GPUs while others have their turns there."""
        return any(share.rotates for share in self.shares)

    @property
    def reserved(self) -> list[GpuShare]:
        """The shares that placement counts. A suspended container keeps its own; one that is being
        restored on another GPU keeps that on the old one too, for the case that the driver refuses.
        """
        held = self.suspension
        if held is None or held.is_off:
            return self.shares
        kept = [share for share in self.shares if held.has_left and share.uuid in held.moves]
        return [*kept, *self.resident]

    @property
    def lends(self) -> bool:
        """Whether containers that rotate may have its room meanwhile: it comes back before them."""
        return not self.rotates and not self.resident

    @property
    def resident(self) -> list[GpuShare]:
        """The shares that others cannot have now: none while the container is suspended; those of
        both GPUs until a container that moves has left the old one.
        """
        held = self.suspension
        if held is None:
            return self.shares
        if held.is_off:
            return []
        there = moved(self.shares, held.moves)
        if not held.moves or held.has_left:
            return there
        return [*self.shares, *[share for share in there if share.uuid in held.moves.values()]]

    def as_json(self) -> dict[str, Any]:
        fields = self.fields()
        for key in ("shares", "becoming"):
            fields[key] = [share.fields() for share in fields[key] or ()]
        if self.suspension:
            fields["suspension"] = self.suspension.as_json()
        for key in (
            "becoming", "engine", "suspension", "idle_suspend", "isolation", "nodes_left",
            "partition", "partitions",
        ):  # fmt: skip
            if not fields[key]:
                del fields[key]
        return fields

    def dump(self) -> str:
        return jsontree.dumps(dict(self.as_json(), version=VERSION)) + "\n"


def parse(text: str) -> Allocation:
    """Raises ValueError: not a whole record of a version we know."""
    fields = jsontree.loads(text)
    if not isinstance(fields, dict):
        raise ValueError("not a record")
    if fields.pop("version", None) != VERSION:
        raise ValueError("not a record of this version")
    try:
        for key in ("shares", "becoming"):
            if key in fields:
                fields[key] = [_share(**share) for share in fields[key]]
        if "suspension" in fields:
            from . import suspension  # few records have one

            fields["suspension"] = suspension.parse(fields["suspension"])
        allocation = Allocation(**fields)
    except (KeyError, TypeError) as error:
        raise ValueError(f"not a whole record: {error}") from error
    _check(allocation)
    return allocation


def moved(shares: list[GpuShare], moves: dict[str, str]) -> list[GpuShare]:
    """The shares on the GPUs that take the place of others."""
    return [share.replaced(uuid=moves.get(share.uuid, share.uuid)) for share in shares]


def _share(**fields: Any) -> GpuShare:
    share = GpuShare(**fields)
    numbers = (
        share.memory_bytes, share.core_percent, share.core_ceiling_percent,
        share.weight, share.priority,
    )  # fmt: skip
    right = (
        isinstance(share.uuid, str)
        and all(type(number) is int for number in numbers)
        and 0 < share.memory_bytes < 1 << 64
        and 1 <= share.core_percent <= share.core_ceiling_percent <= 100
        and share.policy in policies.WORDS
        and 0 < share.weight <= policies.MOST_WEIGHT
        and 0 <= share.priority <= policies.MOST_PRIORITY
        and type(share.managed) is bool
        and share.latency in (policies.NORMAL, policies.LOW)
        and type(share.rotates) is bool
    )
    if not right:
        raise ValueError("invalid share")
    return share


def _gpus(shares: list[GpuShare]) -> list[str]:
    return [share.uuid for share in shares]


def _check(allocation: Allocation) -> None:
    def all_are(kind: type, items: object) -> bool:
        return isinstance(items, list) and all(isinstance(item, kind) for item in items)

    right = (
        isinstance(allocation.id, str)
        and isinstance(allocation.container_id, str)
        and isinstance(allocation.request, dict)
        and isinstance(allocation.pod, dict)
        and all_are(str, list(allocation.pod.values()))
        and isinstance(allocation.engine, dict)
        and all_are(str, list(allocation.engine.values()))
        and bool(allocation.shares)
        and all_are(str, allocation.nodes_left)
        and all_are(int, allocation.partitions)
        and type(allocation.partition) is int
        and 0 <= allocation.partition <= len(allocation.partitions)
        and allocation.isolation in ("", policies.MIG, policies.MPS)
        and type(allocation.idle_suspend) is int
        and 0 <= allocation.idle_suspend <= MOST_SECONDS
        and isinstance(allocation.created, (int, float))
        and 0 <= allocation.created < _END_OF_TIME
        and all_are(str, allocation.runtime)
        and all_are(int, allocation.claimant)
        and len(allocation.claimant) == 2
        and (bool(allocation.runtime) or not allocation.container_id)
        and (not allocation.becoming or _gpus(allocation.becoming) == _gpus(allocation.shares))
    )
    if not right:
        raise ValueError("a field of the wrong kind")
