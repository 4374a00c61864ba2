"""MPS daemons, GPU instances and the driver's limits, as figures of entries of views.py.

What a daemon's server does is what its keeper saw last (fences/mps_folder.py).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.fences import mps_folder
from vcuda_oci.ledger import instance_records
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import fence, policies
from vcuda_oci.model.errors import VcudaError

from . import driver_figures

DOWN, FAULT = "no daemon", "fault"
_WITH_NAMESPACES = 3  # the version of MPS's control interface


class Fences(NamedTuple):
    """mps: by the UUID of each GPU with containers under MPS. instances: GPU by the id of the
    allocation, of each that was made. left_over: ids of those with a released allocation. driver:
    limits of cgroups, by allocation and GPU."""

    mps: Mapping[str, dict[str, Any]]
    instances: Mapping[str, str]
    left_over: frozenset[str] = frozenset()
    driver: driver_figures.Figures = {}


def read(state_dir: str) -> Fences:
    """Nothing where there is nothing, or for a user other than root."""
    mps: dict[str, dict[str, Any]] = {}
    for folder in _folders(state_dir):
        tree = mps_folder.wanted(folder)
        if tree:
            ready, seen = mps_folder.ready(folder), mps_folder.seen(folder)
            mps[tree["gpu"]] = {
                "serves": ready is not None,
                "server_pid": ready.server[0] if ready else None,
                "clients": seen["clients"] if ready and seen else None,
                "fault": bool(ready and seen and seen["fault"]),
                "version": _version(ready),
                "partitions": ready.partitions if ready else [],
                "binds": bool(ready and ready.binds),
            }
    try:
        records = instance_records.read(state_dir)
        stale = {held.id for held in instance_records.stale(Ledger(state_dir))}
    except VcudaError:
        records, stale = [], set()
    instances = {held.id: held.gpu for held in records}
    return Fences(mps, instances, frozenset(stale), driver_figures.read(state_dir))


def add_to(
    tenants: Sequence[dict[str, Any]], gpus: Sequence[dict[str, Any]], found: Fences
) -> None:
    """Add "mps" to the entries, null where it is not used; "instance_of", the GPU of a container's
    own instance; "driver_limit_bytes" and "driver_used_bytes", null without a limit of the driver;
    "instances" and "instances_left_over" to GPUs, as numbers."""
    for entry in tenants:
        if entry["isolation"] == policies.MPS:
            _add_mps(entry, found.mps.get(entry["gpu_uuid"]))
        entry["instance_of"] = found.instances.get(entry["id"])
        _add_driver(entry, found.driver.get((entry["id"], entry["gpu_uuid"])))
    for gpu in gpus:
        mine = {id for id, uuid in found.instances.items() if uuid == gpu["uuid"]}
        gpu["mps"] = found.mps.get(gpu["uuid"])
        gpu["instances"] = len(mine)
        gpu["instances_left_over"] = len(mine & found.left_over)


def _add_mps(entry: dict[str, Any], daemon: Mapping[str, Any] | None) -> None:
    """daemon: as Fences.mps has it; None: the GPU has none."""
    number = (entry["mps"] or {}).get("partition", 0)
    entry["mps"] = None
    holds = entry["isolation_holds"]
    if daemon and daemon["version"] == _WITH_NAMESPACES:
        holds = fence.with_namespace(holds)
    widths = daemon["partitions"] if daemon else []
    width = widths[number - 1] if 0 < number <= len(widths) else None
    if number:
        holds = fence.with_partition(holds, width, daemon["binds"] if daemon and width else None)
    entry["isolation_holds"] = holds
    if daemon:
        mine = {key: value for key, value in daemon.items() if key not in ("partitions", "binds")}
        entry["mps"] = {**mine, "partition": number or None, "multiprocessors": width}


def word(entry: Mapping[str, Any]) -> str:
    """The isolation, and what ails it: "mps", "mps, no daemon", "mps, fault"."""
    isolation, mps = str(entry["isolation"]), entry["mps"]
    if isolation != policies.MPS or (mps and mps["serves"] and not mps["fault"]):
        return isolation
    return f"{isolation}, {FAULT if mps and mps['serves'] else DOWN}"


def _add_driver(entry: dict[str, Any], counted: driver_figures.Counted | None) -> None:
    entry["driver_limit_bytes"] = counted.limit_bytes if counted else None
    entry["driver_used_bytes"] = counted.used_bytes if counted else None
    if counted is None:
        return
    entry["isolation_holds"] = fence.with_driver(entry["isolation_holds"])
    # A larger limit counts contexts that the share does not count. A suspended one holds nothing.
    if counted.limit_bytes == entry["memory_bytes"] and not entry["suspension"]:
        # The driver does not count managed memory.
        entry["memory_used_bytes"] = max(counted.used_bytes, entry["memory_used_bytes"] or 0)


def _version(ready: mps_folder.Ready | None) -> int | None:
    if ready is None:
        return None
    return 2 if ready.spaces is None else _WITH_NAMESPACES


def _folders(state_dir: str) -> list[str]:
    try:
        return mps_folder.folders(state_dir)
    except OSError:
        return []
