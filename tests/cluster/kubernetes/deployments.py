"""A Deployment of pods with shares."""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from typing import Any

from cluster.kubernetes.node import Node


@contextlib.contextmanager
def running(node: Node, pod: dict[str, Any], replicas: int) -> Iterator[None]:
    """Create it, with the pod's name, wait until all of its pods are ready, and delete it."""
    name = pod["metadata"]["name"]
    labels, annotations = {"app": name}, pod["metadata"].get("annotations", {})
    spec = {
        "replicas": replicas,
        "selector": {"matchLabels": labels},
        "template": {
            "metadata": {"labels": labels, "annotations": annotations},
            "spec": pod["spec"],
        },
    }
    metadata = {"name": name, "namespace": "default"}
    node.apply({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": metadata, "spec": spec})
    try:
        node.wait(lambda: ready(node, name) == replicas, "the Deployment's pods")
        yield
    finally:
        node.kubectl("delete", "deployment", name)


def ready(node: Node, name: str) -> int:
    status: dict[str, int] = node.get("deployment", name)["status"]
    return status.get("readyReplicas", 0)
