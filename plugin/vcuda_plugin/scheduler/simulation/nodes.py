"""The cluster that is described: `100x8:H100:80GiB` is 100 nodes of 8 GPUs."""

from __future__ import annotations

import re

from vcuda_oci import names
from vcuda_oci.errors import VcudaError
from vcuda_oci.placement import Gpu
from vcuda_oci.sizes import parse_bytes
from vcuda_plugin.node_gpus import NodeGpus
from vcuda_plugin.scheduler.objects import NodeFacts, node_of

_GROUP = re.compile(r"(\d{1,6})x(\d{1,2}):([^:]{1,60}):(\w{1,20})(?::(\d{1,2}))?", re.ASCII)
_MOST_NODES = 20_000
_MOST_GPUS = 32  # of one node: so many are compared at once
# As vcuda_oci.topology counts: joined by NVLink, and by no more than the system.
LINKED, FAR = 1, 600


def parse(groups: list[str]) -> list[NodeFacts]:
    """Each group is COUNTxGPUS:MODEL:MEMORY[:LINKED]; so many GPUs are near each other.

    Raises VcudaError.
    """
    nodes: list[NodeFacts] = []
    for group in groups:
        found = _GROUP.fullmatch(group)
        size = parse_bytes(found[4]) if found else None
        if not found or not size:
            mend = "write COUNTxGPUS:MODEL:MEMORY, such as 100x8:H100:80GiB"
            raise VcudaError("describes no nodes", f"--nodes {group}", mend)
        count, gpus, linked = int(found[1]), int(found[2]), int(found[5] or 0)
        if not (count and 0 < gpus <= _MOST_GPUS and len(nodes) + count <= _MOST_NODES):
            mend = f"at most {_MOST_NODES} nodes of 1 to {_MOST_GPUS} GPUs"
            raise VcudaError("no such cluster", f"--nodes {group}", mend)
        for _ in range(count):
            nodes.append(_node(f"node-{len(nodes):05}", gpus, found[3], size, linked))
    return nodes


def _node(name: str, gpus: int, model: str, size: int, linked: int) -> NodeFacts:
    told = NodeGpus(
        [Gpu(f"GPU-{name}-{index}", index, -1, size, model) for index in range(gpus)],
        distances=_distances(gpus, linked) if linked else None,
    )
    return node_of(
        {"metadata": {"name": name, "annotations": {names.ANNOTATION_NODE_GPUS: told.dump()}}}
    )


def _distances(gpus: int, linked: int) -> list[list[int]]:
    return [
        [0 if a == b else LINKED if a // linked == b // linked else FAR for b in range(gpus)]
        for a in range(gpus)
    ]
