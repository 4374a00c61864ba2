"""Allocated ResourceClaims, as a scheduler leaves them."""

from __future__ import annotations

from typing import Any

from support.ledger.samples import GIB
from vcuda_hook.claims.dra_names import DRIVER
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.agent.dra import devices, slices
from vcuda_plugin.agent.gpus.inventory import Inventory

NODE, SPACE = "node-1", "default"


def result(uuid: str, cores: object = "30", memory: object = "4Gi", **more: Any) -> dict[str, Any]:
    """A device of the claim's allocation."""
    amounts = {"cores": cores, "memory": memory}
    found = {
        "request": "gpu",
        "driver": DRIVER,
        "pool": NODE,
        "device": devices.name_of(uuid),
        "shareID": "5a3c",
        "consumedCapacity": {key: value for key, value in amounts.items() if value is not None},
    }
    return {**found, **more}


def claim(uid: str, *results: dict[str, Any], config: Any = (), **more: Any) -> dict[str, Any]:
    """The claim "claim-<uid>", used by the pod "pod-<uid>"."""
    pod = {"resource": "pods", "name": f"pod-{uid}", "uid": f"uid-{uid}"}
    return {
        "metadata": {"namespace": SPACE, "name": f"claim-{uid}", "uid": uid},
        "spec": {},
        "status": {
            "allocation": {"devices": {"results": list(results), "config": list(config)}},
            "reservedFor": [pod],
            **more,
        },
    }


def parameters(*requests: str, **fields: Any) -> dict[str, Any]:
    """The configuration with a ShareConfig for some requests; without any, for all."""
    tree = {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig", **fields}
    opaque = {"driver": DRIVER, "parameters": tree}
    return {"source": "FromClaim", "requests": list(requests), "opaque": opaque}


def waiting(
    uid: str, of_class: str = DRIVER, times: int = 1, *, distinct: bool = False, **more: Any
) -> dict[str, Any]:
    """A claim of the pod "pod-<uid>" that has no devices yet. times: requests. more: cores, memory,
    count.
    """
    amounts = {key: more[key] for key in ("cores", "memory") if key in more}
    exactly: dict[str, Any] = {"deviceClassName": of_class, "count": more.get("count", 1)}
    if amounts:
        exactly["capacity"] = {"requests": amounts}
    wanted: dict[str, Any] = {
        "requests": [{"name": f"gpu-{at}", "exactly": exactly} for at in range(times)]
    }
    if distinct:
        wanted["constraints"] = [{"distinctAttribute": f"{DRIVER}/uuid"}]
    owner = {"kind": "Pod", "name": f"pod-{uid}"}
    about = {"namespace": SPACE, "name": f"claim-{uid}", "uid": uid, "ownerReferences": [owner]}
    return {"metadata": about, "spec": {"devices": wanted}, "status": {}}


def slice_of(
    sizes: dict[str, int],
    node: str = NODE,
    unhealthy: dict[str, str] | None = None,
    *,
    has_mps: bool = False,
) -> dict[str, Any]:
    """The slice that the agent writes for GPUs of these sizes in GiB, by UUID."""
    gpus = [Gpu(uuid, at, -1, gib * GIB, "Soft") for at, (uuid, gib) in enumerate(sizes.items())]
    seen = Inventory(gpus, unhealthy=unhealthy or {})
    (write,) = slices.writes(node, "", devices.devices(seen, Rules(), has_mps=has_mps), {})
    assert write.body
    return {**write.body, "metadata": {**write.body["metadata"], "uid": f"slice-{node}"}}
