"""Read the description of a cluster: `100x8:H100:80GiB` is 100 nodes of 8 GPUs."""

from __future__ import annotations

import re

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.sizes import parse_bytes

from ..extender.cluster.objects import NodeFacts, node_of
from ..extender.model import annotations as known
from ..kube.node_gpus import NodeGpus
from . import openb
from .rows import read, rows

_GROUP = re.compile(
    r"(\d{1,6})x(\d{1,2}):([^:@]{1,60}):(\w{1,20})(?::(\d{1,2}))?(?:@(.{1,60}))?", re.ASCII
)
_MOST_NODES = 20_000
_MOST_GPUS = 32  # of one node: the width of the extender's arrays
# The public trace has no size of a GPU's memory, and none of its pods requests memory.
_UNTOLD_BYTES = 16 << 30
# Distances as in vcuda_oci.model.topology: joined by NVLink, and joined only through the system.
LINKED, FAR = 1, 600


def parse(groups: list[str]) -> list[NodeFacts]:
    """Read the nodes of all groups. Raises VcudaError.

    A group is COUNTxGPUS:MODEL:MEMORY[:LINKED][@POOL], where LINKED is how many GPUs are near each
    other, or the name of a CSV file in the format of the public trace.
    """
    nodes: list[NodeFacts] = []
    for group in groups:
        if group.endswith(".csv"):
            nodes += _listed(group)
        else:
            nodes += _described(group, len(nodes))
        if len(nodes) > _MOST_NODES:
            hint = f"name at most {_MOST_NODES} nodes"
            raise VcudaError("no such cluster", f"--nodes {group}", hint)
    if len({node.name for node in nodes}) != len(nodes):
        raise VcudaError("a node twice", " ".join(groups), "name each file once")
    return nodes


def _described(group: str, before: int) -> list[NodeFacts]:
    """Read one described group. before: how many nodes have a number already."""
    found = _GROUP.fullmatch(group)
    size = parse_bytes(found[4]) if found else None
    if not found or not size:
        hint = "write COUNTxGPUS:MODEL:MEMORY, such as 100x8:H100:80GiB, or name a .csv"
        raise VcudaError("describes no nodes", f"--nodes {group}", hint)
    count, gpus, linked = int(found[1]), int(found[2]), int(found[5] or 0)
    if not (0 < count <= _MOST_NODES and 0 < gpus <= _MOST_GPUS):
        hint = f"name at most {_MOST_NODES} nodes of 1 to {_MOST_GPUS} GPUs"
        raise VcudaError("no such cluster", f"--nodes {group}", hint)
    return [
        _node(f"node-{before + number:05}", gpus, found[3], size, linked, found[6] or "")
        for number in range(count)
    ]


def _listed(path: str) -> list[NodeFacts]:
    """Read the nodes with GPUs from a CSV file."""
    nodes, columns = [], ", ".join(openb.NODE_COLUMNS)
    for line, fields in rows(read(path), path, "sn", columns):
        try:
            name, gpus, model = openb.node(fields)
            if gpus > _MOST_GPUS:
                raise ValueError(f"more than {_MOST_GPUS} GPUs")
        except ValueError as error:
            raise VcudaError(str(error), f"{path}:{line}", f"write {columns}") from error
        if gpus:
            nodes.append(_node(name, gpus, model, _UNTOLD_BYTES, 0, ""))
    if not nodes:
        raise VcudaError("no GPUs in it", path, f"write CSV of {columns}")
    return nodes


def _node(name: str, gpus: int, model: str, size: int, linked: int, pool: str) -> NodeFacts:
    reported = NodeGpus(
        [Gpu(f"GPU-{name}-{index}", index, -1, size, model) for index in range(gpus)],
        distances=_distances(gpus, linked) if linked else None,
    )
    labels = {known.QUOTA_MODEL_LABELS[0]: model, known.QUOTA_POOL_LABELS[0]: pool}
    annotations = {names.ANNOTATION_NODE_GPUS: reported.dump()}
    facts = node_of({"metadata": {"name": name, "labels": labels, "annotations": annotations}})
    if not facts.usable:
        raise VcudaError(facts.why, f"{name}: {gpus} of {size} bytes", "write what GPUs can have")
    return facts


def _distances(gpus: int, linked: int) -> list[list[int]]:
    return [
        [0 if a == b else LINKED if a // linked == b // linked else FAR for b in range(gpus)]
        for a in range(gpus)
    ]
