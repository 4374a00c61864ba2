"""Nodes and pods as the extender uses them, read from the API server's objects. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from vcuda_hook.claims.quantity import whole
from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system.settings_file import Config

from ...kube import node_gpus
from ...kube.node_gpus import NodeGpus
from ..model import annotations as known
from ..model import place
from ..model.instances import decided_holds
from ..model.place import Placed
from ..model.pod_request import PodAsk, ask_of, mapping
from ..quota.quota_limits import DEFAULT_PLACE, QuotaPlace
from ..quota.quota_usage import NO_GROUP, Group

_MOST_BYTES = 1 << 50
_MOST_CAPACITY_GPUS = 64
NO_GPUS = "no GPUs that vcuda shares"
_FINISHED = ("Succeeded", "Failed")


@dataclass(frozen=True)
class NodeFacts:
    """A node's GPUs.

    reported: all GPUs that the node reports. usable: those that may get pods. divisible: those in
    MIG mode, on which containers get instances. why: the reason for neither. group: its group for
    quotas. source: the text that it was read from; equality compares name, source and group.
    """

    name: str
    source: str = ""
    group: Group = NO_GROUP
    reported: NodeGpus = field(default_factory=lambda: NodeGpus([]), compare=False)
    usable: tuple[Gpu, ...] = field(default=(), compare=False)
    why: str = field(default="", compare=False)
    divisible: tuple[Gpu, ...] = field(default=(), compare=False)

    @cached_property
    def by_name(self) -> dict[str, Gpu]:
        """GPUs by UUID and by index: decisions older than the reported UUIDs name indexes."""
        named = {gpu.name: gpu for gpu in self.reported.gpus}
        return named | {gpu.uuid: gpu for gpu in self.reported.gpus}


@dataclass(frozen=True)
class PodFacts:
    """A pod.

    node: "" until it is bound. ask: None also for an invalid request, see `trouble`. created: when,
    as the API server writes it.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    finished: bool = False
    ask: PodAsk | None = None
    trouble: str = ""
    decision: Decision | None = None
    priority: int = 0
    created: str = ""


def node_of(node: Mapping[str, Any], place: QuotaPlace = DEFAULT_PLACE) -> NodeFacts:
    """Read a node. Never raises: a node with invalid annotations has no usable GPU."""
    metadata = mapping(node.get("metadata"))
    name, annotations = str(metadata.get("name", "")), mapping(metadata.get("annotations"))
    # What is allocatable kube-scheduler has checked before it asks. With a later watch than its own
    # we would refuse a node that it has just seen return, and the pod would wait for minutes.
    capacity = mapping(mapping(node.get("status")).get("capacity"))
    labels = mapping(metadata.get("labels"))
    read_from = (
        *(annotations.get(key) for key in (names.ANNOTATION_NODE_GPUS, known.CORDONED)),
        *(capacity.get(key) for key in (names.GPUMANAGER_CORE, names.GPUMANAGER_MEMORY)),
        *(labels.get(key) for key in known.MODEL_LABELS),
    )
    source = str(read_from)
    group = Group(_label(labels, place.model_labels), _label(labels, place.pool_labels))
    try:
        if names.ANNOTATION_NODE_GPUS in annotations:
            reported = node_gpus.parse(annotations[names.ANNOTATION_NODE_GPUS])
        else:
            reported = _counted(capacity, labels)
        for gpu in reported.gpus:
            if not (0 < gpu.memory_bytes < _MOST_BYTES and isinstance(gpu.model, str)):
                raise ValueError("a GPU without size or model")
    except ValueError as error:
        why = f"{names.ANNOTATION_NODE_GPUS} cannot be read: {error}"[:200]
        return NodeFacts(name, source, group, why=why)
    if not reported.gpus:
        return NodeFacts(name, source, group, why=NO_GPUS)
    cordoned = {word.strip() for word in str(annotations.get(known.CORDONED, "")).split(",")}
    healthy = [
        gpu
        for gpu in reported.gpus
        if gpu.uuid not in reported.unhealthy and not {gpu.uuid, gpu.name} & cordoned
    ]
    usable = tuple(gpu for gpu in healthy if not gpu.divided)
    divisible = tuple(gpu for gpu in healthy if gpu.divided)
    why = "" if healthy else _none_usable(reported)
    return NodeFacts(name, source, group, reported, usable, why, divisible)


def pod_of(pod: Mapping[str, Any], settings: Config) -> PodFacts | None:
    """Read a pod; None: it requests no GPU."""
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    annotations = mapping(metadata.get("annotations"))
    ask, trouble = None, ""
    try:
        ask = ask_of(pod, settings)
    except VcudaError as error:
        trouble = str(error)
    if ask is None and not trouble:
        return None
    return PodFacts(
        str(metadata.get("uid", "")),
        str(metadata.get("namespace", "")),
        str(metadata.get("name", "")),
        str(spec.get("nodeName") or ""),
        is_finished(pod),
        ask,
        trouble,
        _decision(annotations, str(spec.get("nodeName") or "")),
        priority_of(pod),
        str(metadata.get("creationTimestamp") or ""),
    )


def decided(ask: PodAsk, decision: Decision, node: NodeFacts) -> Placed | None:
    """Return what a pod holds by its decision; None: the decision does not match the request."""
    found = place.decided(ask, decision, node.by_name)
    if found is None:
        return None
    holds = decided_holds(ask, found, node.by_name, node.reported.profiles)
    return Placed(found, holds)


def priority_of(pod: Mapping[str, Any]) -> int:
    """Return the priority, which the API server copies from the pod's priority class."""
    priority = mapping(pod.get("spec")).get("priority")
    return priority if type(priority) is int else 0


def is_finished(pod: Mapping[str, Any]) -> bool:
    return mapping(pod.get("status")).get("phase") in _FINISHED


def _counted(capacity: Mapping[str, Any], labels: Mapping[str, Any]) -> NodeGpus:
    """Return the GPUs, named by index, of a node that has the kubelet's capacity but no annotation.

    Raises ValueError: the capacity is not that of whole GPUs with memory.
    """
    core, blocks = (
        whole(capacity.get(key, 0)) for key in (names.GPUMANAGER_CORE, names.GPUMANAGER_MEMORY)
    )
    count = (core or 0) // 100
    if not count:
        return NodeGpus([])
    if count > _MOST_CAPACITY_GPUS or not blocks:
        raise ValueError("its capacity is that of no GPUs")
    model = _label(labels, known.MODEL_LABELS)
    size = blocks * names.MEMORY_UNIT_BYTES // count
    return NodeGpus([Gpu(str(n), n, -1, size, model) for n in range(count)])


def _decision(annotations: Mapping[str, Any], node: str) -> Decision | None:
    """Return the decision for this node; None: the node's agent uses none either."""
    text = annotations.get(names.ANNOTATION_DECISION)
    if annotations.get(known.PREDICATE_NODE, node) != node:
        return None
    try:
        return decision.parse(text) if isinstance(text, str) else None
    except ValueError:
        return None  # written by the pod's author or by another version


def _label(labels: Mapping[str, Any], keys: tuple[str, ...]) -> str:
    return next((str(labels[key]) for key in keys if key in labels), "")


def _none_usable(reported: NodeGpus) -> str:
    reasons = sorted(set(reported.unhealthy.values()))
    if len(reported.unhealthy) == len(reported.gpus):
        return f"every GPU is unhealthy: {', '.join(reasons)}"[:200]
    return "every GPU is cordoned or unhealthy"
