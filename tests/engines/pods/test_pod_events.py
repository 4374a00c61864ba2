"""Events about a pod's share are on the pod, and `vcuda events` shows all programs' events."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from contract.agent.test_device_plugin import CORE, MEMORY
from engines.hostile.test_bypass_watch import GREEDY, AgentInside
from support.api_server.cluster_api import KubeApi
from support.engines.cri import Cri, Pod
from support.kubelet.watched_pods import NODE, decision_annotations
from support.product import MIB, SOFTGPU, Product, asking
from support.waiting import until
from vcuda_oci.host import host

LIMIT = 1024 * MIB


class ClusterNode:
    """containerd with the agent beside it, GPUs of its own, and the API that the agent tells."""

    def __init__(self, cri: Cri, product: Product, api: KubeApi, driver: str, name: str) -> None:
        self.cri, self.product, self.api, self._driver = cri, product, api, driver
        self._name, self._pods = name, contextlib.ExitStack()
        self.uuids = [gpu.uuid for gpu in host.load(driver, driver + ".json").gpus]

    def pod(self, name: str) -> Pod:
        name = f"{self._name}-{name}"
        uid = self.api.create(name, {"main": {CORE: 10}})
        pod = self.cri.run_pod(name, uid=uid)
        self._pods.callback(self.cri.remove_pod, pod)
        return pod

    def start(self, pod: Pod, *args: str, core: int = 10, memory_bytes: int = LIMIT) -> str:
        """The allocation's id."""
        asked = asking(self.cri, core=core, memory_bytes=memory_bytes)
        self.cri.start_container(pod, args, **asked)
        return f"pod-{pod.uid}.main"

    def fail(self, *words: str) -> None:
        subprocess.run([SOFTGPU, "fail", self._driver, *words], check=True)

    def await_event(self, reason: str) -> dict[str, Any]:
        """The one Event of this reason, once it is there."""

        def found() -> list[dict[str, Any]]:
            return [
                one for one in list(self.api.recorded_events.values()) if one["reason"] == reason
            ]

        until(
            lambda: len(found()) >= 1,
            lambda: json.dumps(self.api.recorded_events, indent=1),
            120,
        )
        (one,) = found()
        return one

    def vcuda(self, *words: str) -> str:
        command = [self.product.prefix + "/bin/vcuda", "--config", self.product.config, *words]
        return self.cri.host.check(command)

    def life(self, id: str) -> list[tuple[str, str]]:
        recorded = json.loads(self.vcuda("events", id, "--json"))
        assert {event["allocation"] for event in recorded} == {id}
        assert [event["time"] for event in recorded] == sorted(event["time"] for event in recorded)
        return [(event["kind"], event["from"]) for event in recorded]

    def close(self) -> None:
        self._pods.close()


@pytest.fixture
def cluster_node(
    cri: Cri, product: Product, scratch: str, container: str, tmp_path: Path
) -> Iterator[ClusterNode]:
    api, driver = KubeApi(), os.path.join(scratch, "driver")
    api.start(network_of=cri.host.pid)
    subprocess.run([SOFTGPU, "create", driver, "--gpus", "2"], check=True)
    with product.on(cri, driver_root=driver):
        program = os.path.join(product.prefix, "bin/vcuda-node-agent")
        words = [program, "--config", product.config, "--kubelet-dir", scratch]
        words += ["--kubeconfig", api.kubeconfig(str(tmp_path / "kubeconfig"))]
        agent = AgentInside(cri.host.inside([*words, "--node-name", NODE]))
        try:
            agent.await_ready()
            node = ClusterNode(cri, product, api, driver, container)
            yield node
            node.close()
        finally:
            agent.end()
            api.stop()
    subprocess.run([SOFTGPU, "destroy", driver], check=True)


def test_a_pod_gets_events_about_its_share(cluster_node: ClusterNode) -> None:
    node = cluster_node
    # The container with the slowest report starts first.
    busy = node.pod("busy")
    waits = node.start(busy, "vcuda-workload", "busy", "--seconds", "200", "--kernel-us", "5000")
    large = node.pod("large")
    with pytest.raises(Exception, match="largest free share"):
        node.start(large, "true", memory_bytes=1 << 45)
    full = node.pod("full")
    alloc = ("alloc", "--chunk", str(LIMIT // 4), "--hold", "200")
    fills = node.start(full, "vcuda-workload", *alloc)
    greedy = node.pod("greedy")
    takes = node.start(greedy, *GREEDY)

    def assert_event(reason: str, pod: Pod, id: str, text: str) -> None:
        one = node.await_event(reason)
        about = {"apiVersion": "v1", "kind": "Pod", "namespace": "default"}
        assert one["involvedObject"] == {**about, "name": pod.name, "uid": pod.uid}
        assert one["message"].startswith(f"allocation {id}: ") and text in one["message"]
        assert (one["type"], one["source"]["host"]) == ("Warning", NODE)

    assert_event("GpuShareRefused", large, f"pod-{large.uid}.main", "largest free share is")
    assert_event("GpuMemoryLimitReached", full, fills, " refused at its limit, 1 GiB of GPU-")
    assert_event("GpuLimitBypassed", greedy, takes, "its limit is 1.00 GiB: process")
    assert_event("GpuShareThrottled", busy, waits, "% of the last minute for their 10 % of GPU-")
    node.fail("--event", "0", "--xid", "79")
    sick = f"{node.uuids[0]} is unhealthy: Xid 79"

    def ill() -> set[str]:
        recorded = list(node.api.recorded_events.values())
        return {one["message"] for one in recorded if one["reason"] == "GpuUnhealthy"}

    until(lambda: ill() == {f"allocation {id}: {sick}" for id in (waits, fills, takes)}, seconds=60)
    assert node.life(fills) == [
        ("claimed", "vcuda-container-runtime"),
        ("out-of-memory", "vcuda-node-agent"),
    ]


def test_an_allocations_life_is_in_order_across_extender_wrapper_hook_command_and_agent(
    cluster_node: ClusterNode,
) -> None:
    node = cluster_node
    pod = node.pod("web")
    shares = {"main": (node.uuids[1], 10, LIMIT)}
    asks = {"main": {CORE: 10, MEMORY: 4}}
    node.api.create(pod.name, asks, uid=pod.uid, annotations=decision_annotations(NODE, **shares))
    id = f"pod-{pod.uid}.main"
    until(lambda: "decided" in node.vcuda("events"))
    with pytest.raises(Exception, match="are asked"):
        node.start(pod, "true", memory_bytes=2 * LIMIT)
    node.cri.remove_container(pod.containers["main"])
    assert node.start(pod, "sleep", "100") == id
    node.vcuda("limit", id, "--memory", "2GiB")
    node.cri.stop_container(pod.containers["main"])
    node.close()
    until(lambda: "released" in node.vcuda("events", id))
    assert node.life(id) == [
        ("decided", "vcuda-scheduler-extender"),
        ("refused", "vcuda-container-runtime"),
        ("claimed", "vcuda-container-runtime"),
        ("limit-changed", "vcuda"),
        ("stopped", "vcuda-container-hook"),
        ("released", "vcuda-node-agent"),
    ]
    table = node.vcuda("events", id)
    assert f"10 % and 1.0 GiB of {node.uuids[1]}" in table.splitlines()[1]
