"""Nodes and pods, as the API server sends them, for tests and benchmarks of the scheduler."""

from __future__ import annotations

import json
from typing import Any

from support.ledger.samples import GIB
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system import settings_file
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.cluster.objects import PodFacts, node_of, pod_of
from vcuda_plugin.extender.model.pod_request import PodAsk, ask_of
from vcuda_plugin.kube.node_gpus import NodeGpus

SETTINGS = settings_file.parse('gpu-resource = "nvidia.com/gpu"', "config.toml")
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"


class Binds:
    """An API that binds every pod."""

    async def call(self, *said: Any, **query: str) -> tuple[int, Any]:
        return 201, {}


def gpus_of(name: str, *memory_gib: int, model: str = "Soft", **changes: Any) -> NodeGpus:
    """The GPUs of node `name`, named GPU-<name>-<index>."""
    gpus = [
        Gpu(f"GPU-{name}-{index}", index, -1, size * GIB, model)
        for index, size in enumerate(memory_gib)
    ]
    return NodeGpus(gpus, **changes)


def node(name: str, gpus: NodeGpus | None = None, **metadata: Any) -> dict[str, Any]:
    annotations = {names.ANNOTATION_NODE_GPUS: gpus.dump()} if gpus else {}
    annotations |= metadata.pop("annotations", {})
    return {"metadata": {"name": name, "annotations": annotations, **metadata}, "status": {}}


def container(name: str = "main", **resources: Any) -> dict[str, Any]:
    """resources: by short names: core=30, memory=20, gpu, gpumem, …."""
    long = {"core": CORE, "memory": MEMORY, "percent": "nvidia.com/gpumem-percentage"}
    limits = {long.get(key, "nvidia.com/" + key): str(value) for key, value in resources.items()}
    return {"name": name, "resources": {"limits": limits}}


def pod(
    name: str,
    *containers: dict[str, Any],
    node: str = "",
    shares: dict[str, list[GpuShare]] | None = None,
    annotations: dict[str, str] | None = None,
    inits: tuple[dict[str, Any], ...] = (),
    uid: str = "",
    phase: str = "Pending",
    namespace: str = "default",
    priority: int = 0,
) -> dict[str, Any]:
    all_annotations = dict(annotations or {})
    if shares:
        all_annotations[names.ANNOTATION_DECISION] = Decision(shares).dump()
    spec: dict[str, Any] = {"containers": list(containers), "initContainers": list(inits)}
    if node:
        spec["nodeName"] = node
    if priority:
        spec["priority"] = priority
    metadata = {"name": name, "namespace": namespace, "uid": uid or "uid-" + name}
    return {
        "metadata": {**metadata, "annotations": all_annotations},
        "spec": spec,
        "status": {"phase": phase},
    }


def ask(*containers: dict[str, Any], **changes: Any) -> PodAsk:
    found = ask_of(pod("asking", *containers, **changes), SETTINGS)
    assert found
    return found


def facts(tree: dict[str, Any]) -> PodFacts:
    found = pod_of(tree, SETTINGS)
    assert found
    return found


def cluster(*objects: dict[str, Any], order: str = "binpack") -> Cluster:
    """A Cluster that receives these nodes and pods in this order."""
    made = Cluster(Rules(order))
    for each in objects:
        each = json.loads(json.dumps(each))
        if "spec" in each:
            made.put_pod(facts(each))
        else:
            made.put_node(node_of(each))
    return made
