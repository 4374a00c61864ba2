"""A pod of higher priority gets the GPU of lower ones."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.kubernetes.node import Node
from support.product import MEMORY_UNIT


@pytest.fixture
def high(node: Node) -> Iterator[str]:
    kind = {"apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass"}
    node.apply({**kind, "metadata": {"name": "high"}, "value": 1000})
    yield "high"
    node.kubectl("delete", "priorityclass", "high")


def test_one_pod_is_evicted_where_the_free_parts_are_on_two_gpus(node: Node, high: str) -> None:
    for name in ("first", "second"):
        node.run(name, 60, 4)
        node.wait_running(name)
    node.run("urgent", 60, 4, priorityClassName=high)
    node.wait_running("urgent")
    left = {name: node.phase(name) for name in ("first", "second")}
    (victim,) = (name for name, phase in left.items() if not phase)
    (other,) = left.keys() - {victim}
    assert node.held() == dict.fromkeys((other, "urgent"), (60, 4 * MEMORY_UNIT))
    assert node.gpus_held() == {name: node.decided(name) for name in (other, "urgent")}


def test_victims_of_kube_schedulers_own_sums_are_on_one_gpu(node: Node, high: str) -> None:
    for name in ("first", "second"):
        node.run(name, 90, 4)
        node.wait_running(name)
    node.run("urgent", 90, 4, priorityClassName=high)
    node.wait_running("urgent")
    assert sorted(node.phase(name) for name in ("first", "second")) == ["", "Running"]
