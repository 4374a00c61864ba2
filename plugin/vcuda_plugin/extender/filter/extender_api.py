"""kube-scheduler's extender messages: read calls, write answers. Pure.

Source: k8s.io/kube-scheduler, extender/v1, types.go. Its fields have no JSON names, so answers use
the Go names. Calls are read without regard to case, as encoding/json does.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from ...kube import json_bytes
from ..model.pod_request import mapping
from .fit import Verdict
from .preempt import Victims

_MOST_NAMES = 100_000  # bounds the memory for the results


class Malformed(ValueError):
    """A call that is not a valid message; its text is one line on the fault."""


class Candidates(NamedTuple):
    """The nodes that a call names.

    nodes: their objects, from a scheduler configured for an extender without a node cache; None:
    it sent names only.
    """

    pod: dict[str, Any]
    names: list[str]
    nodes: list[dict[str, Any]] | None


class Binding(NamedTuple):
    """A pod, and the node that it is bound to."""

    namespace: str
    name: str
    uid: str
    node: str

    def __str__(self) -> str:
        """Format the start of a log line."""
        return f"bind {self.namespace}/{self.name} ({self.uid}) to {self.node}"


def candidates(body: bytes) -> Candidates:
    """Read ExtenderArgs. Raises Malformed."""
    message = _fields(body)
    pod = message.get("pod")
    if not isinstance(pod, dict):
        raise Malformed("ExtenderArgs without a Pod")
    names, nodes = message.get("nodenames"), message.get("nodes")
    if isinstance(names, list):
        if len(names) > _MOST_NAMES:
            raise Malformed(f"more than {_MOST_NAMES} NodeNames")
        if not {str}.issuperset(map(type, names)):
            raise Malformed("NodeNames are not all names")
        return Candidates(pod, names, None)
    if names is not None:
        raise Malformed("NodeNames is not a list")
    items = _lower(nodes).get("items") if isinstance(nodes, dict) else nodes
    if items is not None and not isinstance(items, list):
        raise Malformed("Nodes is not a list of nodes")
    found = [each for each in items or [] if isinstance(each, dict)]
    return Candidates(pod, [_name(each) for each in found], found)


def binding(body: bytes) -> Binding:
    """Read ExtenderBindingArgs. Raises Malformed."""
    message = _fields(body)
    fields = [message.get(key) for key in ("podnamespace", "podname", "poduid", "node")]
    if not all(isinstance(field, str) and field for field in fields):
        raise Malformed("ExtenderBindingArgs need PodName, PodNamespace, PodUID and Node")
    return Binding(*map(str, fields))


def preemption(body: bytes) -> tuple[dict[str, Any], dict[str, Victims]]:
    """Read ExtenderPreemptionArgs: the pod, and the victims proposed on each node.

    Victims are whole pods, or UIDs from a scheduler configured for an extender with a cache.
    Raises Malformed.
    """
    message = _fields(body)
    pod = message.get("pod")
    if not isinstance(pod, dict):
        raise Malformed("ExtenderPreemptionArgs without a Pod")
    nodes = message.get("nodenametometavictims") or message.get("nodenametovictims") or {}
    if not isinstance(nodes, dict) or len(nodes) > _MOST_NAMES:
        raise Malformed("ExtenderPreemptionArgs without NodeNameTo(Meta)Victims")
    return pod, {name: _victims(each) for name, each in nodes.items() if each is not None}


def preemption_result(found: Mapping[str, Victims]) -> bytes:
    """Write ExtenderPreemptionResult."""
    nodes = {
        name: {
            "Pods": [{"UID": uid} for uid in victims.uids],
            "NumPDBViolations": victims.violations,
        }
        for name, victims in found.items()
    }
    return json_bytes.dumps({"NodeNameToMetaVictims": nodes})


def filter_result(asked: Candidates, verdict: Verdict) -> bytes:
    """Write ExtenderFilterResult."""
    nodes = None
    if asked.nodes is not None:
        fitting = set(verdict.fitting)
        nodes = {"items": [each for each in asked.nodes if _name(each) in fitting]}
    return json_bytes.dumps(
        {
            "Nodes": nodes,
            "NodeNames": verdict.fitting if nodes is None else None,
            "FailedNodes": _without_verbs(verdict.refused),
            "FailedAndUnresolvableNodes": _without_verbs(verdict.never),
            "Error": "",
        }
    )


def filter_error(reason: str) -> bytes:
    empty = {"Nodes": None, "NodeNames": None, "FailedNodes": None}
    return json_bytes.dumps(
        {**empty, "FailedAndUnresolvableNodes": None, "Error": without_verbs(reason)}
    )


def priorities(names: Sequence[str], scores: Sequence[int]) -> bytes:
    """Write HostPriorityList."""
    return json_bytes.dumps([{"Host": name, "Score": score} for name, score in zip(names, scores)])


def binding_result(reason: str) -> bytes:
    """Write ExtenderBindingResult; "": bound."""
    return json_bytes.dumps({"Error": without_verbs(reason)})


def without_verbs(reason: str) -> str:
    """Return `reason` without format verbs.

    kube-scheduler 1.36 formats an extender's reason as Go's Sprintf does. Other readers show it
    unchanged, so "%%" would be wrong for them.
    """
    return reason.replace(" %", " percent").replace("%", " percent ") if "%" in reason else reason


def _without_verbs(reasons: Mapping[str, str]) -> dict[str, str]:
    return {node: without_verbs(reason) for node, reason in reasons.items()}


def _victims(message: Any) -> Victims:
    fields = _lower(mapping(message))
    pods, violations = fields.get("pods") or [], fields.get("numpdbviolations", 0)
    uids = []
    for pod in pods if isinstance(pods, list) else [None]:
        each = _lower(mapping(pod))
        metadata = each.get("metadata")
        uid = metadata.get("uid") if isinstance(metadata, dict) else each.get("uid")
        if not isinstance(uid, str) or type(violations) is not int:
            raise Malformed("Victims need Pods with their UIDs, and a number of violations")
        uids.append(uid)
    return Victims(tuple(uids), violations if type(violations) is int else 0)


def _fields(body: bytes) -> dict[str, Any]:
    try:
        message = json_bytes.loads(body)
    except ValueError as error:
        raise Malformed(f"not JSON: {error}") from None
    if not isinstance(message, dict):
        raise Malformed("not a JSON object")
    return _lower(message)


def _lower(message: dict[str, Any]) -> dict[str, Any]:
    return {key.lower(): value for key, value in message.items()}


def _name(node: dict[str, Any]) -> str:
    return str(mapping(node.get("metadata")).get("name", ""))
