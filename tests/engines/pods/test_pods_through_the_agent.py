"""Pods on a node: the kubelet calls the agent, containerd gets its answer, the wrapper claims."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from contract.agent.test_device_plugin import CORE, GPU, MEMORY
from support.agent.node_agent import Agent
from support.engines import each_cri
from support.engines.cri import Cri, Pod
from support.kubelet.fake_kubelet import Admitted, Kubelet
from support.product import MIB, Product
from support.waiting import until

pytestmark = each_cri

SHOW = ["sh", "-c", "ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info"]


@pytest.fixture
def pod(cri: Cri, product: Product, container: str) -> Iterator[Pod]:
    with product.on(cri, gpu_resource=GPU):
        pod = cri.run_pod(container)
        yield pod
        cri.remove_pod(pod)


@pytest.fixture
def kubelet(cri: Cri, product: Product, pod: Pod, tmp_path: Path) -> Iterator[Kubelet]:
    """Of a node where the agent runs on the same settings as containerd's runtime."""
    kubelet = Kubelet(str(tmp_path / "kubelet"))
    kubelet.start()
    program = os.path.join(product.prefix, "bin/vcuda-node-agent")
    agent = Agent([program, "--config", product.config, "--kubelet-dir", kubelet.folder])
    try:
        agent.await_ready()
        until(lambda: all(kubelet.healthy(name) for name in (CORE, MEMORY, GPU)))
        yield kubelet
    finally:
        agent.end()
        kubelet.stop()


def seen(cri: Cri, pod: Pod, admitted: Admitted, annotations: bool, mounts: bool) -> str:
    """The container's output, with an engine that passes these annotations and mounts."""
    started = cri.start_container(
        pod,
        SHOW,
        annotations=admitted.annotations if annotations else None,
        mounts=admitted.mounts if mounts else (),
    )
    status = cri.wait_for(started)
    output, errors = cri.output(pod)
    cri.remove_container(started)
    del pod.containers["main"]
    return output if status == 0 else errors


@pytest.mark.parametrize(
    ("annotations", "mounts"),
    [(True, True), (True, False), (False, True)],
    ids=["handed on both", "mounts dropped", "annotations dropped"],
)
def test_a_container_has_what_its_pod_asked_for_whatever_the_engine_hands_on(
    cri: Cri, product: Product, pod: Pod, kubelet: Kubelet, annotations: bool, mounts: bool
) -> None:
    admitted = kubelet.admit(pod.uid, "main", {CORE: 30, MEMORY: 4})
    output = seen(cri, pod, admitted, annotations, mounts)
    assert output.splitlines()[0] == "nvidia0"
    assert f'"total_bytes": {1024 * MIB}' in output
    (record,) = product.allocations(cri)
    assert (record["pod"]["uid"], record["pod"]["container"]) == (pod.uid, "main")
    assert [(s["core_percent"], s["memory_bytes"]) for s in record["shares"]] == [(30, 1024 * MIB)]


def test_whole_gpus_are_not_shared_with_other_containers(
    cri: Cri, product: Product, pod: Pod, kubelet: Kubelet
) -> None:
    output = seen(cri, pod, kubelet.admit(pod.uid, "main", {GPU: 2}), True, True)
    assert output.splitlines()[:2] == ["nvidia0", "nvidia1"]
    (record,) = product.allocations(cri)
    assert [share["core_percent"] for share in record["shares"]] == [100, 100]


def test_a_mount_of_anything_else_in_the_requests_place_asks_for_nothing(
    cri: Cri, product: Product, pod: Pod, kubelet: Kubelet, tmp_path: Path
) -> None:
    """As a volume of the pod's author may be, by a claim or an empty directory of that name."""
    forged = tmp_path / "requests/vcuda-core/100"
    forged.mkdir(parents=True)
    mount = (str(forged), "/usr/local/vcuda/request/vcuda-core")
    started = cri.start_container(pod, ["ls", "/dev"], mounts=[mount])
    assert cri.wait_for(started) == 0
    assert "nvidia" not in cri.output(pod)[0]
    assert product.allocations(cri) == []
