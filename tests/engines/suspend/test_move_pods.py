"""A pod's container moves if the node has chosen its GPU, and stays if a scheduler has."""

from __future__ import annotations

import json

from engines.starts.test_container_names import vcuda
from engines.suspend.test_move import seen_inside, share
from engines.suspend.test_suspend import HELD, WORKING, succeed, works
from support.engines import each_cri
from support.engines.base import Result
from support.engines.cri import Cri, Pod
from support.product import MIB, Product, asking
from support.suspend.notebook import cells, queried
from support.waiting import until
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.pods.decision_folder import DecisionFolder

pytestmark = each_cri
MEMORY = 1024 * MIB


def begin(cri: Cri, pod: Pod) -> str:
    """Start the pod's container, again if it runs; return once it has computed."""
    if pod.containers:
        cri.stop_container(pod.containers["main"])
        cri.remove_container(pod.containers["main"])
    id = cri.start_container(pod, WORKING, **asking(cri, core=30, memory_bytes=MEMORY))
    until(lambda: bool(cells(cri, pod.name)))
    return id


def uuids(cri: Cri, product: Product) -> list[str]:
    listed = json.loads(succeed(cri, product, "gpus", "--json"))
    return [gpu["uuid"] for gpu in sorted(listed, key=lambda gpu: int(gpu["index"]))]


def drained(cri: Cri, product: Product, gpu: str) -> Result:
    return vcuda(cri, product, "drain", gpu, "--yes")


def test_pod_without_a_decision_moves_and_begins_anew_on_its_new_gpu(
    cri: Cri, product: Product, pod: Pod
) -> None:
    begin(cri, pod)
    before, (first, second) = share(cri, product), uuids(cri, product)
    assert before["uuid"] == first
    assert "is moved: 512 MiB" in succeed(cri, product, "move", pod.name, "--gpu", "1")
    assert queried(cri, product, "memory.used") == [0, HELD]
    assert (share(cri, product), seen_inside(cri, pod.name)) == ({**before, "uuid": second}, second)
    works(cri, pod.name)
    begin(cri, pod)
    assert queried(cri, product, "memory.used") == [0, HELD]
    assert "is moved to GPU 0" in drained(cri, product, "1").stdout
    assert seen_inside(cri, pod.name) == first
    works(cri, pod.name)
    succeed(cri, product, "undrain", "1")


def test_pod_that_a_scheduler_has_placed_stays_with_the_reason(
    cri: Cri, product: Product, pod: Pod
) -> None:
    placed = Decision({"main": [GpuShare(uuids(cri, product)[1], MEMORY, 30)]})
    DecisionFolder(product.state_dir(cri)).put(pod.uid, placed)
    begin(cri, pod)
    why = "belongs to a pod, which the scheduler has placed on its GPU"
    mend = "delete the pod, and it is scheduled anew; or suspend the container"
    refused = vcuda(cri, product, "move", pod.name, "--gpu", "0")
    assert (refused.rc, f"{why}; {mend}" in refused.stderr) == (1, True), refused.stderr
    stays = drained(cri, product, "1")
    assert (stays.rc, f"{why}; {mend}" in stays.stderr) == (1, True), stays.stderr
    succeed(cri, product, "undrain", "1")
    begin(cri, pod)
    refused = vcuda(cri, product, "move", pod.name, "--gpu", "0")
    assert (refused.rc, why in refused.stderr) == (1, True), refused.stderr
    assert queried(cri, product, "memory.used") == [0, HELD]


def test_rebalance_moves_a_pod_of_the_node_and_none_of_a_scheduler(
    cri: Cri, product: Product, pod: Pod
) -> None:
    """80 % fit beside neither, and the second pod holds fewer bytes."""
    begin(cri, pod)
    second = uuids(cri, product)[1]
    other = cri.run_pod(f"{pod.name}-2")
    try:
        placed = Decision({"main": [GpuShare(second, MEMORY, 30)]})
        DecisionFolder(product.state_dir(cri)).put(other.uid, placed)
        cri.start_container(other, ["sleep", "600"], **asking(cri, core=30, memory_bytes=MEMORY))
        words = ("rebalance", "--core", "80", "--memory", "1GiB")
        (move,) = json.loads(succeed(cri, product, *words, "--json"))["moves"]
        assert (move["bytes"], move["to_gpu_uuid"]) == (HELD * MIB, second)
        assert "it fits now" in succeed(cri, product, *words, "--yes")
        assert queried(cri, product, "memory.used") == [0, HELD]
        assert seen_inside(cri, pod.name) == second
        works(cri, pod.name)
        assert "it fits already" in succeed(cri, product, *words)
    finally:
        cri.remove_pod(other)
