"""Claims on a GPU that is not the first of its node, which kube-scheduler 1.34 mostly refuses."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cluster.claims.test_fences import BY_DRA
from cluster.kubernetes import claims
from cluster.kubernetes.node import Node


@pytest.fixture(scope="module")
def offering(started: Node) -> Iterator[Node]:
    started.offer("dra", first_only=True)
    started.wait(lambda: len(claims.devices(started)) == 2, "the node's devices")
    yield started
    started.offer("plugin")


@pytest.mark.parametrize(("cores", "memory"), [(40, "1Gi"), (100, "16Gi")], ids=["share", "whole"])
def test_second_gpu_gets_what_the_first_has_no_room_for(
    offering: Node, node: Node, cores: int, memory: str
) -> None:
    claims.run(node, "first", 70, "1Gi")
    node.wait_running("first")
    claims.run(node, "second", cores, memory)
    if node.cluster.minor >= 35:
        node.wait_running("second")
        one, other = node.gpus_held().values()
        assert one != other
        return
    node.wait(lambda: BY_DRA in str(node.events("second", "FailedScheduling")), "the refusal")
    claims.run(node, "third", 30, "1Gi")
    node.wait_running("third")
    one, other = node.gpus_held().values()
    assert one == other and not node.bound("second")
    for name in ("first", "third"):
        node.delete(name)
    node.wait_running("second")
    assert node.gpus_held() == {"second": one}
