"""Pods with shares by DRA."""

from __future__ import annotations

from typing import Any

from cluster.kubernetes.control_plane import NODE
from cluster.kubernetes.node import Node
from support.engines.base import IMAGE

DRIVER = "gpu.vcuda.io"
API = "resource.k8s.io/v1"


def template(
    name: str, cores: int, memory: str, cel: str = "", fence: str = "", **share: Any
) -> dict[str, Any]:
    """cel: a selector of devices. fence: "mig" or "mps"; "": turns. share: of a ShareConfig."""
    requests = {"cores": str(cores), "memory": memory}
    kind = f"{fence}.{DRIVER}" if fence else DRIVER
    exactly: dict[str, Any] = {"deviceClassName": kind, "capacity": {"requests": requests}}
    if cel:
        exactly["selectors"] = [{"cel": {"expression": cel}}]
    devices: dict[str, Any] = {"requests": [{"name": "gpu", "exactly": exactly}]}
    if share:
        parameters = {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig", **share}
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return {
        "apiVersion": API,
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name, "namespace": "default"},
        "spec": {"spec": {"devices": devices}},
    }


def pod(name: str, of_template: str, command: list[str], restart: str) -> dict[str, Any]:
    main = {
        "name": "main",
        "image": IMAGE,
        "imagePullPolicy": "Never",
        "command": command,
        "resources": {"claims": [{"name": "share"}]},
    }
    spec = {
        "automountServiceAccountToken": False,
        "enableServiceLinks": False,
        "terminationGracePeriodSeconds": 0,
        "restartPolicy": restart,
        "containers": [main],
        "resourceClaims": [{"name": "share", "resourceClaimTemplateName": of_template}],
    }
    metadata = {"name": name, "namespace": "default"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def run(
    node: Node,
    name: str,
    cores: int,
    memory: str,
    command: list[str] | None = None,
    restart: str = "Always",
    fence: str = "",
) -> None:
    """Create a pod with a claim: percent of a GPU, and memory as Kubernetes writes it."""
    of_template = f"{fence or 'share'}-{cores}-{memory.lower()}"
    if node.get("resourceclaimtemplate", of_template) is None:
        node.apply(template(of_template, cores, memory, fence=fence))
    node.apply(pod(name, of_template, command or ["sleep", "10000"], restart))


def specs(node: Node) -> list[dict[str, Any]]:
    """The node's slices."""
    items = node.get("resourceslices", f"--field-selector=spec.nodeName={NODE}")["items"]
    return [item["spec"] for item in items]


def devices(node: Node) -> list[str]:
    """The names of the node's devices that kube-scheduler sees."""
    return sorted(device["name"] for spec in specs(node) for device in spec.get("devices") or ())
