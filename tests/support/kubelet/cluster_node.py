"""A node of a cluster: a fake API and kubelet, real containerd, the agent, the wrapper."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]
import pytest

from support.agent.node_agent import Agent
from support.api_server.cluster_api import KubeApi
from support.engines.cri import Cri, Pod
from support.kubelet.fake_kubelet import Kubelet
from support.kubelet.watched_pods import CORE, MEMORY, NODE, decision_annotations
from support.product import MEMORY_UNIT, Product
from support.waiting import until

GIB = 1 << 30
SHOW = ["sh", "-c", "ls /dev | grep -x 'nvidia[0-9]'; vcuda-workload info"]
ASKS = {CORE: 30, MEMORY: 4}


class ClusterNode:
    """A node with an engine that calls the wrapper. uuids: its GPUs in NVML's order."""

    def __init__(self, cri: Cri, product: Product, folder: str) -> None:
        self.cri, self.product = cri, product
        self.api, self.kubelet = KubeApi(), Kubelet(folder + "/kubelet")
        self.state_dir = product.state_dir(cri)
        self.uuids: list[str] = []
        self._folder, self._asked = folder, dict[str, Mapping[str, Mapping[str, int]]]()
        self._pods: list[Pod] = []
        self.api.start()
        self.kubelet.start()
        self.agent: Agent | None = None

    def start_agent(self, *more: str) -> Agent:
        """Start the agent with these options; return once the kubelet has its devices and the API
        server its GPUs.
        """
        self.api.clear_nodes()
        program = os.path.join(self.product.prefix, "bin/vcuda-node-agent")
        kubeconfig = self.api.kubeconfig(self._folder + "/kubeconfig")
        words = ["--config", self.product.config, "--kubelet-dir", self.kubelet.folder]
        words += ["--kubeconfig", kubeconfig, "--node-name", NODE]
        self.agent = Agent([program, *words, *more])
        self.agent.await_ready()
        until(lambda: bool(self.kubelet.healthy(CORE)) and bool(self.kubelet.healthy(MEMORY)))
        if self.api.is_there:
            until(lambda: NODE in self.api.nodes)
            gpus = json.loads(self.api.nodes[NODE]["vcuda.io/node-gpus"])["gpus"]
            self.uuids = [gpu["uuid"] for gpu in sorted(gpus, key=lambda gpu: gpu["index"])]
        return self.agent

    def end_agent(self) -> None:
        if self.agent is not None:
            self.agent.end()
            self.agent = None

    def close(self) -> None:
        for pod in self._pods:
            self.cri.remove_pod(pod)
        self.end_agent()
        self.kubelet.stop()
        self.api.stop()

    def decision_annotations(self, **gpu_by_container: int) -> dict[str, str]:
        """The scheduler's annotations for containers that ask for ASKS: GPU index by container."""
        places: dict[str, Any] = {
            name: (self.uuids[index], ASKS[CORE], ASKS[MEMORY] * MEMORY_UNIT)
            for name, index in gpu_by_container.items()
        }
        return decision_annotations(**places)

    def schedule(
        self, name: str, annotations: dict[str, str], *containers: str, **more: Any
    ) -> str:
        """Create a pod on this node; return its UID once the node has its decision file.

        Each container asks for ASKS; the default is one container, `main`.
        """
        known = len(self.decision_uids())
        asking = dict.fromkeys(containers or ("main",), ASKS)
        uid = self.api.create(name, asking, annotations=annotations, **more)
        until(lambda: len(self.decision_uids()) > known)
        return uid

    def run_pod(self, name: str, uid: str) -> Pod:
        pod = self.cri.run_pod(name, uid=uid)
        self._pods.append(pod)
        return pod

    def remove_pod(self, pod: Pod) -> None:
        self._pods.remove(pod)
        self.cri.remove_pod(pod)

    def start(
        self,
        pod: Pod,
        name: str = "main",
        args: list[str] | None = None,
        annotations: bool = True,
        asks: Mapping[str, int] = ASKS,
    ) -> str:
        """Start a container as the kubelet does; return its id.

        annotations: whether the engine passes them to the runtime.
        """
        # On a busy machine the agent may be registering again.
        until(lambda: all(self.kubelet.healthy(resource) for resource in asks))
        admitted = self.kubelet.admit(pod.uid, name, asks)
        return self.cri.start_container(
            pod,
            args or ["sleep", "100"],
            name=name,
            annotations=admitted.annotations if annotations else None,
            mounts=admitted.mounts,
        )

    def seen(self, pod: Pod, name: str = "main", **how: Any) -> list[str]:
        """Run a container to its end; return the GPU device nodes that it saw."""
        id = self.start(pod, name, SHOW, **how)
        assert self.cri.wait_for(id) == 0, self.cri.output(pod, name)
        self.cri.remove_container(id)
        pod.containers.pop(name)
        return [line for line in self.cri.output(pod, name)[0].splitlines() if "/" not in line][:1]

    def held(self) -> dict[str, tuple[int, int, str]]:
        """(GPU index, percent, policy) of each record, by pod and container."""
        found = {}
        for record in self.product.allocations(self.cri):
            (share,) = record["shares"]
            index = self.uuids.index(share["uuid"])
            key = f"{record['pod']['name']}.{record['pod']['container']}"
            found[key] = (index, share["core_percent"], share.get("policy", "fixed"))
        return found

    def refusal(self, pod: Pod, name: str = "main", **how: Any) -> str:
        """The error line that the kubelet shows for a container that is refused, without its id."""
        with pytest.raises(grpc.RpcError) as refused:
            self.start(pod, name, **how)
        line = str(refused.value.details()).rpartition("vcuda-container-runtime: ")[2]
        line = line.strip().removesuffix(": unknown")  # containerd's word for the kind of error
        allocation = f" (allocation pod-{pod.uid}.{name})"
        assert line.endswith(allocation), line
        return line.removesuffix(allocation)

    def decide(self, uid: str, annotations: dict[str, str]) -> None:
        """Replace the annotations of the binding; return once the node has the new decision.

        The agent retains the first decision that it saw, so its decision file is removed.
        """
        path = f"{self.state_dir}/decisions/{uid}.json"
        until(lambda: os.path.exists(path))
        os.unlink(path)
        self.api.annotate(uid, **annotations)
        shares = json.loads(annotations["vcuda.io/placement-decision"])["containers"]

        def is_known() -> bool:
            if not os.path.exists(path):
                return False
            with open(path, encoding="utf-8") as record:
                return bool(json.load(record)["containers"] == shares)

        until(is_known)

    def decision_uids(self) -> set[str]:
        """UIDs of the pods that have a decision file."""
        names = os.listdir(self.state_dir + "/decisions")
        return {name.removesuffix(".json") for name in names if name.endswith(".json")}
