"""Sample GPUs, hosts, owners and records, and the content of a ledger."""

from __future__ import annotations

import glob
import os
import time
from typing import Any

from vcuda_oci.container.identity import Owner
from vcuda_oci.edits.edits import Paths
from vcuda_oci.host.host import DeviceNode, Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request

GIB = 1 << 30


def gpus(*memory_gib: int) -> list[Gpu]:
    return [
        Gpu(f"GPU-{index}", index, index, size * GIB, "Soft")
        for index, size in enumerate(memory_gib)
    ]


def host(*memory_gib: int) -> Host:
    found = Host("/root", "580.95.05", "/root/usr/lib/x86_64-linux-gnu", gpus(*memory_gib))
    for gpu in found.gpus:
        found.nodes[f"nvidia{gpu.minor}"] = DeviceNode(f"/dev/nvidia{gpu.minor}", 195, gpu.minor)
    found.nodes["nvidiactl"] = DeviceNode("/dev/nvidiactl", 195, 255)
    found.nodes["nvidia-uvm"] = DeviceNode("/dev/nvidia-uvm", 510, 0)
    return found


def pod_owner(container_id: str, name: str = "main") -> Owner:
    return Owner(f"pod-uid1.{name}", container_id, "uid1", "default", "web", name, "sandbox1")


def record(id: str = "box", **changes: Any) -> Allocation:
    """A record of which the claiming process has ended."""
    fields: dict[str, Any] = {
        "id": id,
        "shares": [GpuShare("GPU-0", 4 * GIB, 30)],
        "request": Request.of(30, 4 * GIB).as_json(),
        "container_id": id,
        "runtime": ["/nowhere/runc", "--root", "/nowhere/root"],
        "claimant": [1, 1],
        "created": 1700000000.5,
        "pod": {},
    }
    return Allocation(**{**fields, **changes})


def left_in(state_dir: str) -> list[str]:
    """Files and folders in a state folder, except locks, the claim socket, the event log and the
    turn keeper's figures.

    The record of an ended container's page remains while the page keeper, or a sync of all file
    systems, has the page open. The next claim removes it, as this function does.
    """
    deadline = time.monotonic() + 30
    while glob.glob(state_dir + "/ended/*") and time.monotonic() < deadline:
        time.sleep(0.01)
        Ledger(state_dir).cut_ended()
    found = []
    for folder, folders, files in os.walk(state_dir):
        if folder == state_dir + "/turns":
            continue
        found += [
            os.path.relpath(os.path.join(folder, name), state_dir) for name in folders + files
        ]
    stays = {"lock", "pages.lock", "turns.lock", "door.sock", "events.jsonl"}
    stays |= {"allocations", "containers", "ended", "turns"}
    return sorted(set(found) - stays)


def shares_of(ledger: Ledger) -> dict[str, list[GpuShare]]:
    allocations, broken = ledger.read()
    assert broken == []
    return {allocation.id: allocation.shares for allocation in allocations}


PATHS = Paths(
    "/opt/lib/libvcuda.so.1",
    "/run/vcuda/containers/box",
    ["/opt/bin/vcuda-container-hook", "--config", "/c", "poststop"],
    [["/run/softgpu", "/run/softgpu"]],
)
