"""Pods behind the fence that one annotation names: containerd, the agent, an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest

from support.claim_server import ClaimServer
from support.cluster_node import ClusterNode
from support.fake_kubelet import until
from support.mps_processes import kill_daemons

MPS = {"vcuda.io/isolation": "mps"}
BUSY = ["vcuda-workload", "busy", "--kernel-us=1000", "--async=4", "--seconds=100"]
LIMIT = 1 << 30


@pytest.fixture
def mps_node(cluster_node: ClusterNode) -> Iterator[ClusterNode]:
    """As the chart runs it: the host's vcuda.service has the claim socket, and the MPS daemons."""
    cluster_node.end_agent()
    cluster_node.start_agent("--no-door")
    server = ClaimServer(cluster_node.cri.host, cluster_node.product, cluster_node.state_dir)
    yield cluster_node
    server.close()
    kill_daemons(cluster_node.state_dir)


def test_pods_under_mps_run_at_once_where_the_scheduler_decided(
    mps_node: ClusterNode, container: str
) -> None:
    node, product, cri = mps_node, mps_node.product, mps_node.cri
    pods = []
    for name in (container, container + "-2"):
        decided = {**node.decision_annotations(main=0), **MPS}
        pods.append(node.run_pod(name, node.schedule(name, decided)))
        node.start(pods[-1], args=BUSY)
    until(lambda: len(product.processes()) == 2)
    until(lambda: all(one["kernels_finished"] > 50 for one in product.processes()))
    # Each has its 30 % of the multiprocessors, and no turn of the other keeps it waiting.
    inside = cri.exec_in(pods[0].containers["main"], ["vcuda-workload", "alloc"])
    assert json.loads(inside.stdout)["exact_bytes"] == LIMIT
    assert {record["isolation"] for record in product.allocations(cri)} == {"mps"}
    uid = node.schedule(container + "-3", node.decision_annotations(main=0))
    turns = node.run_pod(container + "-3", uid)
    assert "its containers are under MPS" in node.refusal(turns)
