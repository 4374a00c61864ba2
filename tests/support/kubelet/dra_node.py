"""A node that offers its GPUs by DRA, with a fake kubelet and a fake API server."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import tempfile
import time
from collections.abc import Iterator
from typing import Any

from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.api_server.fake_api_objects import CLAIMS, SLICES
from support.kubelet.dra_claims import NODE, SPACE, claim, result
from support.kubelet.fake_dra_kubelet import DraKubelet
from support.kubelet.fake_kubelet import Kubelet
from support.ledger.samples import GIB
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare


class DraNode:
    """A node with two software GPUs that offers them by DRA."""

    def __init__(self, node: AgentNode, **more: str) -> None:
        self.node = node
        node.configure(gpu_offer="dra", **more)
        self.folder = str(node.gpu.root.parent)
        # Names of sockets are long: a short folder.
        self.root = tempfile.mkdtemp(prefix="kubelet")
        node.kubelet.stop()
        node.kubelet = Kubelet(f"{self.root}/device-plugins")
        node.kubelet.start()
        self.kubelet = DraKubelet(self.root)
        self.cdi = f"{self.folder}/cdi"
        self.api = KubeApi()
        self.api.add({"metadata": {"name": NODE, "uid": "node-uid"}})

    def start(self, *more: str) -> Agent:
        words = ["--config", self.node.config, "--kubelet-dir", self.node.kubelet.folder]
        words += ["--kubeconfig", self.api.kubeconfig(f"{self.folder}/kubeconfig")]
        words += ["--node-name", NODE, "--cdi-dir", self.cdi]
        return Agent([self.node.program, *words, *more])

    @contextlib.contextmanager
    def agent(self) -> Iterator[Agent]:
        agent = self.start()
        try:
            agent.await_ready()
            yield agent
        finally:
            agent.end()

    def slices(self) -> dict[str, dict[str, Any]]:
        with self.api.lock:
            found: dict[str, dict[str, Any]] = json.loads(json.dumps(self.api.objects[SLICES]))
        return found

    def generation(self) -> int:
        (each,) = self.slices().values()
        return int(each["spec"]["pool"]["generation"])

    def devices(self) -> list[dict[str, Any]]:
        return [device for each in self.slices().values() for device in each["spec"]["devices"]]

    def uuids(self) -> list[str]:
        return [device["attributes"]["uuid"]["string"] for device in self.devices()]

    def allocate(self, uid: str, uuid: str, cores: str = "30") -> tuple[str, str, str]:
        """Allocate a claim; return it as the kubelet names it."""
        self.api.set(CLAIMS, f"{SPACE}/claim-{uid}", claim(uid, result(uuid, cores)))
        return SPACE, f"claim-{uid}", uid

    def status(self, uid: str) -> dict[str, Any]:
        with self.api.lock:
            found: dict[str, Any] = self.api.objects[CLAIMS][f"{SPACE}/claim-{uid}"]["status"]
        return found

    def held(self) -> list[str]:
        return sorted(name[:-5] for name in os.listdir(f"{self.node.state_dir}/allocations"))

    def hold(self, name: str, uuid: str) -> Allocation:
        """Write the record of a pod that the device plugin gave a share."""
        pod = {"namespace": SPACE, "name": name, "container": "main"}
        share = GpuShare(uuid, GIB, 30)
        held = Allocation(f"pod-{name}.main", [share], {}, "", [], [1, 1], time.time(), pod)
        with Ledger(self.node.state_dir) as ledger:
            ledger.record(held)
        return held

    def release(self, held: Allocation) -> None:
        with Ledger(self.node.state_dir) as ledger:
            ledger.remove(held.id)

    def tainted(self) -> list[str]:
        """The UUIDs of the devices that get no claim, and the taints' values."""
        return [
            f"{device['attributes']['uuid']['string']} {taint['value']}"
            for device in self.devices()
            for taint in device.get("taints", ())
        ]


@contextlib.contextmanager
def running(node: AgentNode, **settings: str) -> Iterator[DraNode]:
    """The node with its API server; the agent is not started."""
    dra = DraNode(node, **settings)
    with dra.api.running():
        yield dra
    dra.kubelet.close()
    shutil.rmtree(dra.root)
