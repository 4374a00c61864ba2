"""Allocated ResourceClaims, as a scheduler leaves them."""

from __future__ import annotations

from typing import Any

from vcuda_plugin.agent.dra import devices
from vcuda_plugin.kube.dra_names import DRIVER

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
