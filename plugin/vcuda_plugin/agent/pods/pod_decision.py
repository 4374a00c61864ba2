"""Derive from a pod's object the decision that its containers need before they are created: pure.

The pod's author writes the annotations; invalid ones are ignored.

The objects above a pod are not asked for: the agent may read pods only. A Deployment is known by
its ReplicaSet's name, which ends with the pod's hash, and a CronJob by its Job's, which ends with
the time in minutes. Source: Kubernetes, controllers deployment/sync.go and cronjob/utils.go.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vcuda_oci.ledger import decision
from vcuda_oci.ledger.decision import Amounts, Decision
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError

from ...kube import pod_amounts, pod_terms

# The kubelet's mirror of a static pod. The UID that the engine gets is in an annotation: an MD5, so
# not a UID of the API. Source: kubelet pkg/kubelet/{types,config}, "config.mirror", applyDefaults.
_MIRROR = "kubernetes.io/config.mirror"
_STATIC_UID = re.compile(r"[0-9a-f]{32}")
_API_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}")
_PLACEMENT = "vcuda.io/placement"
_PREDICATE_NODE = "tencent.com/predicate-node"
# Longer than any valid value; a truncated value is invalid, too.
_LONGEST_WORD = 100
_ENDED = ("Succeeded", "Failed")
_HASH = "pod-template-hash"
_BY_TIME = re.compile(r"(.+)-[0-9]{8,10}")
_MOST_OWNERS = 100
_LONGEST_KIND, _LONGEST = 63, 253


@dataclass(frozen=True)
class PodDecision:
    """uid: as the engine writes it. containers: those with a request, by name. complaint: which
    annotations are ignored, or "".
    """

    uid: str
    name: str
    containers: tuple[str, ...]
    decision: Decision = field(default_factory=Decision)
    complaint: str = ""


def of_pod(
    pod: Mapping[str, Any], node: str, resources: Collection[str], gpu_resource: str = ""
) -> PodDecision | None:
    """None: the pod requests none of `resources`, is of another node, or has ended. Never raises.

    gpu_resource: the resource with amounts in the pod's object; or "".
    """
    metadata, spec = mapping(pod.get("metadata")), mapping(pod.get("spec"))
    containers = [
        container for container in _containers(spec) if container.asked.keys() & set(resources)
    ]
    asking = tuple(container.name for container in containers)
    ended = mapping(pod.get("status")).get("phase") in _ENDED
    if not asking or ended or spec.get("nodeName") != node:
        return None
    annotations = mapping(metadata.get("annotations"))
    name = f"{metadata.get('namespace')}/{metadata.get('name')}"
    uid = str(annotations.get(_MIRROR, metadata.get("uid")))
    if not (_STATIC_UID if _MIRROR in annotations else _API_UID).fullmatch(uid):
        return None
    words = _words(annotations)
    init = [container.name for container in containers if container.ends_first]
    amounts, complaint = _amounts(containers, gpu_resource)
    shares, ignored = _decided(annotations, node)
    mine = {container: held for container, held in shares.items() if container in asking}
    decided = Decision(mine, words, init, amounts, owner_of(metadata))
    return PodDecision(uid, name, asking, decided, ignored or complaint)


def owner_of(metadata: Mapping[str, Any]) -> str:
    """ "Kind/name" of the pod's controller, such as "Deployment/train"; "": it has none."""
    for owner in listed(metadata, "ownerReferences")[:_MOST_OWNERS]:
        if owner.get("controller") is True:
            kind, name = owner.get("kind"), owner.get("name")
            if isinstance(kind, str) and isinstance(name, str) and kind != "Node":
                return _above(kind, name, metadata)
    return ""


def _above(kind: str, name: str, metadata: Mapping[str, Any]) -> str:
    its_hash = mapping(metadata.get("labels")).get(_HASH)
    if kind == "ReplicaSet" and isinstance(its_hash, str) and name.endswith(f"-{its_hash}"):
        kind, name = "Deployment", name[: -len(its_hash) - 1]
    elif kind == "Job" and (by_time := _BY_TIME.fullmatch(name)):
        kind, name = "CronJob", by_time[1]
    return f"{kind[:_LONGEST_KIND]}/{name[:_LONGEST]}"


def _decided(annotations: Mapping[str, Any], node: str) -> tuple[Mapping[str, Any], str]:
    """The scheduler's shares by container; if it decided nothing valid, {} and the reason."""
    text = annotations.get(names.ANNOTATION_DECISION)
    if text is None or _MIRROR in annotations:  # no scheduler decides for a static pod
        return {}, ""
    elsewhere = annotations.get(_PREDICATE_NODE, node)
    if elsewhere != node:
        return {}, f"decided for node '{elsewhere}'"
    try:
        return decision.parse(str(text)).containers, ""
    except ValueError as error:
        return {}, f"{names.ANNOTATION_DECISION} is not a decision: {error}"


class _Container(NamedTuple):
    """asked: amount by resource. ends_first: an init container that is no sidecar."""

    name: str
    asked: dict[str, Any]
    ends_first: bool


def _containers(spec: Mapping[str, Any]) -> Iterator[_Container]:
    for kind in ("initContainers", "containers"):
        for each in listed(spec, kind):
            ends_first = kind == "initContainers" and each.get("restartPolicy") != "Always"
            yield _Container(str(each.get("name")), pod_amounts.asked(each), ends_first)


def _amounts(containers: Sequence[_Container], gpu_resource: str) -> tuple[dict[str, Amounts], str]:
    """The amounts of each container that requests GPUs, and the reason why any are invalid."""
    found: dict[str, Amounts] = {}
    complaint = ""
    for container in containers:
        try:
            amounts = pod_amounts.of_gpus(container.asked, gpu_resource, container.name)
        except VcudaError as error:
            complaint = f"container {container.name}: {error.what}"
            continue
        if amounts:
            found[container.name] = amounts
    return found, complaint


def _words(annotations: Mapping[str, Any]) -> dict[str, str]:
    words = pod_terms.words_of(annotations)
    if _PLACEMENT in annotations:
        words["placement"] = str(annotations[_PLACEMENT])[:_LONGEST_WORD]
    return words


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a part of an object of the API; {} where it has another type."""
    return value if isinstance(value, dict) else {}


def listed(tree: Mapping[str, Any], key: str) -> list[Mapping[str, Any]]:
    """Return a list of parts, likewise."""
    found = tree.get(key)
    return list(map(mapping, found)) if isinstance(found, list) else []
