"""A pod's container moves if the node has chosen its GPU, and stays if a scheduler has."""

from __future__ import annotations

from engines.test_container_names import vcuda
from engines.test_move import seen_inside, share
from engines.test_suspend import HELD, WORKING, succeed, works
from support.cluster_node import ClusterNode
from support.engines import each_cri
from support.engines.base import Result
from support.fake_kubelet import until
from support.notebook import cells, queried
from support.product import Product

pytestmark = each_cri


def test_pod_without_a_decision_moves_and_begins_anew_on_its_new_gpu(
    cluster_node: ClusterNode, product: Product, container: str
) -> None:
    cri = cluster_node.cri
    pod = cluster_node.run_pod(container, cluster_node.schedule(container, {}))
    first = cluster_node.start(pod, args=WORKING)
    until(lambda: bool(cells(cri, container)))
    before = share(cri, product)
    assert "is moved: 512 MiB" in succeed(cri, product, "move", container, "--gpu", "1")
    assert queried(cri, product, "memory.used") == [0, HELD]
    assert share(cri, product) == {**before, "uuid": cluster_node.uuids[1]}
    assert cri.exec_in(first, ["nvidia-smi", "-L"]).stdout.count(cluster_node.uuids[1]) == 1
    works(cri, container)
    cri.stop_container(first)
    cri.remove_container(first)
    cluster_node.start(pod, args=WORKING)
    until(lambda: bool(cells(cri, container)))
    assert queried(cri, product, "memory.used") == [0, HELD]
    assert "is moved to GPU 0" in drained(cluster_node, product, "1").stdout
    assert seen_inside(cri, container) == cluster_node.uuids[0]
    works(cri, container)
    succeed(cri, product, "undrain", "1")


def test_pod_that_a_scheduler_has_placed_stays_with_the_reason(
    cluster_node: ClusterNode, product: Product, container: str
) -> None:
    cri = cluster_node.cri
    decision = cluster_node.decision_annotations(main=1)
    pod = cluster_node.run_pod(container, cluster_node.schedule(container, decision))
    first = cluster_node.start(pod, args=WORKING)
    until(lambda: bool(cells(cri, container)))
    why = "belongs to a pod, which the scheduler has placed on its GPU"
    mend = "delete the pod, and it is scheduled anew; or suspend the container"
    refused = vcuda(cri, product, "move", container, "--gpu", "0")
    assert (refused.rc, f"{why}; {mend}" in refused.stderr) == (1, True)
    stays = drained(cluster_node, product, "1")
    assert (stays.rc, f"{why}; {mend}" in stays.stderr) == (1, True)
    succeed(cri, product, "undrain", "1")
    cri.stop_container(first)
    cri.remove_container(first)
    cluster_node.start(pod, args=WORKING)
    refused = vcuda(cri, product, "move", container, "--gpu", "0")
    assert (refused.rc, why in refused.stderr) == (1, True)
    assert cluster_node.held()[f"{container}.main"][0] == 1


def drained(node: ClusterNode, product: Product, gpu: str) -> Result:
    return vcuda(node.cri, product, "drain", gpu, "--yes")
