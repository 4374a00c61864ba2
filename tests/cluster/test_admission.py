"""Pods that ask for a share without the RuntimeClass."""

from __future__ import annotations

import pytest

from cluster.kubernetes.node import Node
from support.product import MEMORY_UNIT

REMEDY = "needs runtimeClassName: vcuda; without it, it would run without a GPU"


def test_pod_without_the_runtime_class_gets_it_or_is_refused(node: Node) -> None:
    pod = node.pod("first", 30, 4)
    del pod["spec"]["runtimeClassName"]
    if not node.cluster.has_mutating_policies():
        assert REMEDY in node.refusal(pod)
        return
    node.apply(pod)
    node.wait_running("first")
    assert node.get("pod", "first")["spec"]["runtimeClassName"] == "vcuda"
    # As for a pod that names it: what the RuntimeClass asks of nodes is added.
    assert node.get("pod", "first")["spec"]["nodeSelector"] == {"nvidia-device-enable": "enable"}
    assert node.held() == {"first": (30, 4 * MEMORY_UNIT)}


@pytest.mark.parametrize("name", ["runc", "other"])
def test_pod_with_another_runtime_class_is_refused_with_the_remedy(node: Node, name: str) -> None:
    kind = {"apiVersion": "node.k8s.io/v1", "kind": "RuntimeClass", "handler": "runc"}
    node.apply({**kind, "metadata": {"name": name}})
    try:
        pod = node.pod("first", 30, 4)
        pod["spec"]["runtimeClassName"] = name
        assert REMEDY in node.refusal(pod)
    finally:
        node.kubectl("delete", "runtimeclass", name)


def test_pod_without_a_share_keeps_the_default_runtime(node: Node) -> None:
    pod = node.pod("first", 30, 4)
    del pod["spec"]["runtimeClassName"], pod["spec"]["containers"][0]["resources"]
    pod["spec"]["schedulerName"] = "default-scheduler"
    node.apply(pod)
    node.wait_running("first")
    assert "runtimeClassName" not in node.get("pod", "first")["spec"]
