"""A pod's container gives its GPU memory back, and works on as if nothing had been."""

from __future__ import annotations

import json
from typing import Any

from cluster.kubernetes.node import Node

# A cell each eight seconds; between two of them it is idle.
WORK = "vcuda-workload notebook --bytes 64MiB --seconds 1000 --every-ms 8000"


def notebook(node: Node, **annotations: str) -> None:
    pod = node.pod("notebook", 30, 4, WORK.split())
    pod["metadata"]["annotations"] = annotations
    node.apply(pod)
    node.wait(lambda: cells(node) != [], "the first cell")


def cells(node: Node) -> list[dict[str, Any]]:
    """What the program printed of each cell."""
    lines = node.kubectl("logs", "notebook", check=False).splitlines()
    return [json.loads(line) for line in lines if line.startswith('{"cell"')]


def suspension(node: Node) -> dict[str, Any]:
    """Of the pod's record; {}: it is on its GPU."""
    (record,) = node.product.allocations(node.engine)
    return dict(record.get("suspension") or {})


def is_suspended(node: Node) -> bool:
    return suspension(node).get("step") == "suspended"


def assert_works_on(node: Node, before: int) -> None:
    node.wait(lambda: len(cells(node)) > before, "the next cell")
    assert suspension(node) == {}
    assert [cell["intact"] for cell in cells(node)] == [True] * len(cells(node))
    (status,) = node.get("pod", "notebook")["status"]["containerStatuses"]
    assert status["restartCount"] == 0


def test_idle_pod_by_annotation_comes_back_with_its_next_call(node: Node) -> None:
    notebook(node, **{"vcuda.io/idle-suspend": "2s"})
    node.wait(lambda: is_suspended(node), "the suspension")
    held = suspension(node)
    assert held["by"] == "idle"
    assert sum(held["bytes"].values()) >= 64 << 20
    assert_works_on(node, len(cells(node)))
    # A suspended pod ends as any other.
    node.wait(lambda: is_suspended(node), "the next suspension")


def test_pod_suspended_by_order_waits_for_the_order_to_resume(node: Node) -> None:
    notebook(node)
    node.vcuda("suspend", "default/notebook")
    before = len(cells(node))
    assert suspension(node)["by"] == "order"
    # The container runs for the kubelet.
    assert node.exec("notebook", "echo", "here") == "here\n"
    node.vcuda("resume", "default/notebook")
    assert_works_on(node, before)
