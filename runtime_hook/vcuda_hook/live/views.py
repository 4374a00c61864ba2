"""GPUs and their shares as JSON trees, for the command and the agent.

The container itself reports its usage figures. They are bounded by what is possible; impossible
ones are omitted.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_oci.model import fence, policies
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.suspension import SUSPENDED, WAITING
from vcuda_oci.placement import free
from vcuda_oci.placement.eligible import DRAINED
from vcuda_oci.placement.rules import Rules

from ..names.engine_files import Described
from ..text import table
from . import fence_figures, turn_figures
from .turn_figures import GpuTurns
from .usage import Use

NOTHING_KNOWN = Described()

# State of a tenant's figures: read; the page cannot be read; the page has more than the GPU has, or
# less than before.
READ, UNREADABLE, IMPOSSIBLE = "told", "unreadable", "impossible"
_MOST_BYTES = 1 << 60  # for an unknown GPU


def condition(entry: Mapping[str, Any]) -> str:
    """Why a GPU gets no new containers: "drained", "unhealthy: Xid 79"; "": it gets some."""
    sick = str(entry["unhealthy"] or "")
    return f"unhealthy: {sick}" if sick not in ("", DRAINED) else sick


def is_drained(entry: Mapping[str, Any]) -> bool:
    return str(entry["unhealthy"] or "").endswith(DRAINED)


def gpu_entries(
    gpus: Sequence[Gpu],
    whole: Sequence[Allocation],
    rules: Rules,
    unhealthy: Mapping[str, str],
) -> list[dict[str, Any]]:
    """Each GPU and what is free on it. whole: every record. unhealthy: the reason, by UUID."""
    entries = []
    for gpu in gpus:
        promised = [share for each in whole for share in each.shares if share.uuid == gpu.uuid]
        # May be more than the GPU has where room is lent.
        taken = [share for each in whole for share in each.reserved if share.uuid == gpu.uuid]
        left = free.free_on(gpu, taken, rules)
        entries.append(
            {
                "index": gpu.index,
                "name": gpu.name,
                "uuid": gpu.uuid,
                "model": gpu.model,
                "memory_bytes": gpu.memory_bytes,
                "free_core_percent": 0 if gpu.divided else left.core,
                "free_memory_bytes": 0 if gpu.divided else left.memory,
                "promised_memory_bytes": sum(share.memory_bytes for share in promised),
                "memory_overcommit": rules.overcommit,
                "tenants": len(promised),
                "unhealthy": unhealthy.get(gpu.uuid) or unhealthy.get(gpu.parent),
                "mig_mode": gpu.divided,
                "mig_parent": gpu.parent or None,
            }
        )
    return entries


def tenant_entries(
    allocation: Allocation,
    used: Sequence[Use],
    gpus: Mapping[str, Gpu],
    shown: Described = NOTHING_KNOWN,
) -> list[dict[str, Any]]:
    """One entry for each GPU of the allocation; unknown figures are null. gpus: by UUID. shown: for
    display; without a name the id is shown.
    """
    return [
        {
            "id": allocation.id,
            "container_id": allocation.container_id,
            "name": shown.name or short_id(allocation.id),
            "image": shown.image or None,
            "pod": allocation.pod or None,
            "gpu_index": gpus[share.uuid].index if share.uuid in gpus else None,
            "gpu_name": gpus[share.uuid].name if share.uuid in gpus else None,
            "gpu_uuid": share.uuid,
            "core_percent": share.core_percent,
            "core_ceiling_percent": share.core_ceiling_percent,
            "memory_bytes": share.memory_bytes,
            "memory_managed": share.managed,
            **_figures(use, gpus.get(share.uuid)),
            **_suspension(allocation, share.uuid),
            "policy": share.policy,
            "rotates": share.rotates,
            "weight": share.weight,
            "priority": share.priority,
            "latency": share.latency,
            **_isolation(allocation, share, gpus.get(share.uuid)),
            "created": allocation.created,
        }
        for share, use in zip(allocation.shares, used)
    ]


def complete(
    tenants: Sequence[dict[str, Any]],
    gpus: Sequence[dict[str, Any]],
    state_dir: str,
    earlier: Mapping[str, GpuTurns],
    later: Mapping[str, GpuTurns],
) -> None:
    """Add to the entries of containers and GPUs what turns and fences say of them.

    earlier, later: two readings of the turns. A figure that is derived from others belongs here,
    behind both.
    """
    turn_figures.add_to(tenants, gpus, earlier, later)
    fence_figures.add_to(tenants, gpus, fence_figures.read(state_dir))
    for entry in tenants:
        held = entry["memory_used_bytes"]
        part = None if held is None else 100 * held / entry["memory_bytes"]
        entry["memory_used_percent"] = part


def _isolation(allocation: Allocation, share: GpuShare, gpu: Gpu | None) -> dict[str, Any]:
    word, line = fence.of(allocation.isolation, share.core_percent, gpu)
    number = allocation.partition  # the rest of "mps" is what fence_figures.py adds
    mps = {"partition": number} if number else None
    return {"isolation": word, "isolation_holds": line, "mps": mps}


def _figures(use: Use, gpu: Gpu | None) -> dict[str, Any]:
    counters = use.counters
    figures: dict[str, Any] = dict.fromkeys(
        (
            "core_used_percent", "memory_used_bytes", "memory_off_bytes", "contexts",
            "context_bytes", "waited_percent", "busy_seconds", "waited_seconds",
            "overrun_seconds", "launches", "refusals", "full_gpu",
        )
    )  # fmt: skip
    if counters is None:
        return {**figures, "usage": UNREADABLE}
    core, waited = use.core_percent, use.waited_percent
    most = gpu.memory_bytes if gpu else _MOST_BYTES
    held, off = counters.held_bytes, counters.off_bytes
    if held > most or off > _MOST_BYTES or (core or 0) < 0 or (waited or 0) < 0:
        return {**figures, "usage": IMPOSSIBLE}
    return {
        # Long kernels are counted when they end, which may be more than the time since the last
        # sample.
        "core_used_percent": None if core is None else min(core, 100.0),
        "memory_used_bytes": counters.held_bytes,
        "memory_off_bytes": counters.off_bytes,
        # Threads that wait at the same time are counted separately.
        "waited_percent": None if waited is None else min(waited, 100.0),
        "contexts": counters.contexts,
        "context_bytes": use.context_bytes,
        "busy_seconds": counters.busy_ns / 1e9,
        "waited_seconds": counters.throttled_ns / 1e9,
        "overrun_seconds": counters.overrun_ns / 1e9,
        "launches": counters.launches,
        "refusals": counters.refusals,
        "full_gpu": counters.room_asked,
        "usage": READ,
    }


def _suspension(allocation: Allocation, uuid: str) -> dict[str, Any]:
    """The suspension of a container; one that is off its GPU holds no memory there, even if its
    page says so.
    """
    held = allocation.suspension
    if held is None:
        return {"suspension": None}
    shown = {**held.as_json(), "bytes": held.bytes.get(uuid, 0)}
    return {"suspension": shown, **({"memory_used_bytes": 0} if held.is_off else {})}


def is_off(entry: Mapping[str, Any]) -> bool:
    """Whether its memory is the host's now."""
    held = entry["suspension"]
    return held is not None and held["step"] in (SUSPENDED, WAITING)


def suspended(entry: Mapping[str, Any]) -> str:
    """Such as "suspended 5m, 4 GiB on host"; "": it is not."""
    held = entry["suspension"]
    if not held:
        return ""
    return f"{held['step']} {suspended_for(entry)}, {table.size(held['bytes'])} on host"


def suspended_for(entry: Mapping[str, Any]) -> str:
    """How long it has been suspended, such as "5m"."""
    return table.age(time.time() - entry["suspension"]["since"])


def policy(entry: Mapping[str, Any]) -> str:
    """The policy as text, such as "elastic to 80 %, priority 5, low latency, rotates"."""
    keys = ("policy", "core_ceiling_percent", "weight", "priority", "latency")
    text = policies.describe(*(entry[key] for key in keys))
    return text + (", rotates" if entry["rotates"] else "")


def short_id(id: str) -> str:
    """The first twelve characters of an id of 64 hex digits, as engines show it."""
    is_hash = len(id) == 64 and not id.strip("0123456789abcdef")
    return id[:12] if is_hash else id
