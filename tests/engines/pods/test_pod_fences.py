"""Pods behind the fence that one annotation names: containerd, the agent, an API server."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.cri import Cri
from support.gpu.mig_node import H100
from support.kubelet.cluster_node import ClusterNode
from support.product import Product
from support.softgpu.mps_processes import kill_daemons
from support.waiting import until
from vcuda_oci.ledger import instance_records

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


@pytest.fixture
def mig_node(cri: Cri, product: Product, scratch: str, tmp_path: Path) -> Iterator[ClusterNode]:
    """A node of a GPU in turns and an H100 in MIG mode, without MIG devices."""
    machine = product.with_gpus(scratch + "/driver", 2, *H100, "--mig", "1=")
    with machine.on(cri):
        node = ClusterNode(cri, machine, str(tmp_path))
        try:
            node.start_agent("--no-door")
            yield node
        finally:
            node.close()


def test_pods_get_an_instance_each_on_the_gpu_that_the_scheduler_decided(
    mig_node: ClusterNode, container: str
) -> None:
    node, cri = mig_node, mig_node.cri
    decided = {**node.decision_annotations(main=1), "vcuda.io/isolation": "mig"}
    look = ["sh", "-c", "ls /dev/nvidia-caps; vcuda-workload info; sleep 100"]
    pods = []
    for name in (container, container + "-2"):
        pods.append(node.run_pod(name, node.schedule(name, decided)))
        node.start(pods[-1], args=look)
    until(lambda: all("devices" in cri.output(pod)[0] for pod in pods))
    caps = [cri.output(pod)[0].split()[:2] for pod in pods]
    assert caps[0] != caps[1]  # each has the capabilities of its own instance
    for pod in pods:
        (device,) = json.loads(cri.output(pod)[0].splitlines()[-1])["devices"]
        assert device["total_bytes"] == 40448 << 20  # 3g.40gb is the least with 30 %
    records = instance_records.read(node.state_dir)
    assert [one.gpu for one in records] == [node.uuids[1]] * 2
    turns = {**node.decision_annotations(main=1), "vcuda.io/isolation": "turns"}
    refused = node.run_pod(container + "-3", node.schedule(container + "-3", turns))
    assert "is in MIG mode" in node.refusal(refused)
    for pod in pods:
        node.remove_pod(pod)
    # A pod's record waits for its next container.
    words = [f"{node.product.prefix}/bin/vcuda", "--config", node.product.config]
    assert cri.host.run([*words, "release", "--all-dead"]).rc == 0
    assert instance_records.read(node.state_dir) == []
