"""The chart's DaemonSet on a node: real containerd runs its pod from the manifest."""

from __future__ import annotations

import os
from collections.abc import Iterator

import pytest

from contract.agent.test_device_plugin import CORE, MEMORY
from contract.chart import rendering
from contract.chart.rendering import AGENT
from support.engines.cri import Cri
from support.kubelet.config_map import ConfigMapVolume
from support.kubelet.fake_kubelet import Kubelet
from support.kubelet.pod_of_manifest import ManifestPod
from support.product import Product
from support.waiting import until
from vcuda_oci.ledger import events
from vcuda_oci.start import claim_socket

FIGURES = "http://127.0.0.1:5678"
ASK = """
import sys, urllib.error, urllib.request
try:
    answer = urllib.request.urlopen(sys.argv[1])
except urllib.error.HTTPError as error:
    answer = error
print(answer.status, answer.read().decode())
"""


class ChartNode:
    """A kubelet, and the agent as the chart deploys it with values that are this node's.

    software_gpu: whether the chart is told of it.
    """

    def __init__(
        self, cri: Cri, product: Product, folder: str, name: str, software_gpu: bool
    ) -> None:
        self.cri, self.product = cri, product
        self.kubelet = Kubelet(folder + "/kubelet/device-plugins")
        self.state_dir = product.state_dir(cri)
        values = {
            "settings": {"state-dir": self.state_dir},
            "agent": {
                "driverRoot": product.driver_root,
                "softwareGpu": software_gpu,
                "kubeletDir": folder + "/kubelet",
            },
        }
        found = rendering.objects(values)
        data = rendering.one(found, "ConfigMap", "vcuda")["data"]
        settings = ConfigMapVolume(folder + "/config", data)
        beside = {product.prefix: product.prefix}  # it is not at /usr here
        self.pod = ManifestPod(
            cri,
            rendering.pod_spec(found, AGENT),
            name=name + "-agent",
            program=product.prefix + "/bin/vcuda-node-agent",
            options=["--config", "/etc/vcuda/config.toml"],
            folders={"config": settings.folder},
            beside=beside,
            node="node-1",
        )

    def ask(self, path: str) -> str:
        """As the kubelet and Prometheus do."""
        return self.cri.host.check(["/usr/bin/python3", "-IS", "-c", ASK, FIGURES + path])

    def start(self) -> None:
        self.kubelet.start()
        # What the kubelet makes: hostPath's DirectoryOrCreate.
        folders = [self.state_dir, "/run/containerd", "/run/runc", "/run/crun", "/run/utsns"]
        self.cri.host.check(["mkdir", "-p", *folders])
        # On a host that systemd runs every mount is shared.
        root = self.product.driver_root
        self.cri.host.check(["mount", "--bind", root, root])
        for folder in (root, "/run"):
            self.cri.host.check(["mount", "--make-shared", folder])
        self.pod.start()

    def close(self) -> None:
        code, log = self.pod.end(), self.pod.log()
        self.cri.host.check(["umount", self.product.driver_root])
        self.cri.host.check(["mount", "--make-private", "/run"])
        self.kubelet.stop()
        assert code == 0, log
        assert "Traceback" not in log, log


@pytest.fixture
def chart_node(
    cri: Cri, product: Product, scratch: str, container: str, request: pytest.FixtureRequest
) -> Iterator[ChartNode]:
    with product.on(cri):
        node = ChartNode(cri, product, scratch, container, request.param)
        try:
            node.start()
            yield node
        finally:
            node.close()


@pytest.mark.parametrize("chart_node", [True], indirect=True)
def test_the_daemonsets_pod_offers_gpus_and_has_metrics_of_their_containers(
    cri: Cri, product: Product, chart_node: ChartNode, container: str
) -> None:
    until(lambda: all(map(chart_node.kubelet.healthy, (CORE, MEMORY))), what=chart_node.pod.log)
    assert chart_node.ask("/readyz").split() == ["200", "ok"]
    pod = cri.run_pod(container)
    try:
        admitted = chart_node.kubelet.admit(pod.uid, "main", {CORE: 30, MEMORY: 4})
        cri.start_container(
            pod, ["sleep", "100"], annotations=admitted.annotations, mounts=admitted.mounts
        )
        (record,) = product.allocations(cri)
        assert (record["pod"]["uid"], record["shares"][0]["core_percent"]) == (pod.uid, 30)
        figures = chart_node.ask("/metrics").splitlines()
        labels = ('namespace="default"', f'pod="{container}"', 'container="main"')
        assert any(all(label in line for label in labels) for line in figures)
        # A claim socket in a pod would refuse every claim, and replace the host's own.
        assert not os.path.exists(f"{chart_node.state_dir}/{claim_socket.NAME}")
    finally:
        cri.remove_pod(pod)


@pytest.mark.parametrize("chart_node", [False], indirect=True)
def test_pod_without_gpus_is_not_ready_and_logs_the_reason(chart_node: ChartNode) -> None:
    """The chart is not told that its driver root is a software GPU with a state that must be
    written."""
    state = chart_node.product.driver_root + "/softgpu.state"
    hint = f"{state} cannot be written: mount it read-write; in the chart, set "
    hint += "agent.softwareGpu=true"
    until(lambda: hint in chart_node.pod.log(), what=chart_node.pod.log)
    until(lambda: chart_node.ask("/readyz").startswith("503 no GPU is offered: "))
    assert hint in chart_node.ask("/readyz")
    assert chart_node.ask("/healthz").split() == ["200", "ok"]
    (event,) = (
        each for each in events.read(chart_node.state_dir) if each["kind"] == events.NO_GPUS
    )
    assert hint in event["text"]
