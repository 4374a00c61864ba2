"""Why a pod waits where its events do not say: no room for its claims, or no scheduler."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from ..claims import objects
from ..claims.objects import Claim
from ..claims.room import NOT_JUDGED, Room
from . import kubectl
from .kubectl import Unanswered
from .reasons import Reason

_API = "/apis/resource.k8s.io/v1"
_MOST_LISTED = 5000
_MOST_NODES = 5
_NEVER = "ask for less"
_HINT = "ask for less, or end what 'vcuda ps' on that node or the cluster page shows"


def ask(namespace: str, pod: str) -> list[Reason]:
    """Why claims of the pod are not allocated, with what they ask for and what is free."""
    try:
        names = claim_names(json.loads(kubectl.raw(f"/api/v1/namespaces/{namespace}/pods/{pod}")))
        if not names:
            return []
        every = [*filter(None, map(objects.claim_of, _list("resourceclaims")))]
        mine = [each for each in every if each.namespace == namespace and each.name in names]
        slices = _list("resourceslices") if mine else []
    except Unanswered as error:
        return [_unknown(str(error))]
    except (ValueError, KeyError, TypeError, RecursionError):
        return [_unknown("kubectl gave no such objects")]
    room = Room((device for each in slices for device in objects.devices_of(each)), every)
    return [reason for claim in mine if claim.held is None for reason in of_claim(claim, room)]


def unseen(namespace: str, pod: str) -> Reason | None:
    """Why a pod without any event waits; None: there is no such pod, or it has a node."""
    try:
        spec = json.loads(kubectl.raw(f"/api/v1/namespaces/{namespace}/pods/{pod}"))["spec"]
        if spec.get("nodeName"):
            return None
        what = f"no scheduler has looked at it: its schedulerName is {spec['schedulerName']}"
    except (Unanswered, ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return None
    return Reason("pending", what, "see whether that scheduler runs: 'kubectl get pods -A'")


def claim_names(pod: Mapping[str, Any]) -> set[str]:
    """The names of the pod's claims. pod: an object of the API. Source: core/v1 Pod."""
    spec, status = pod["spec"], pod.get("status") or {}
    named = [*(spec.get("resourceClaims") or ()), *(status.get("resourceClaimStatuses") or ())]
    named.append(status.get("extendedResourceClaimStatus") or {})
    return {str(each["resourceClaimName"]) for each in named if each.get("resourceClaimName")}


def of_claim(claim: Claim, room: Room) -> Iterator[Reason]:
    """Why a claim waits."""
    asks = f"claim {claim.name} asks for {claim.text}"
    verdict = room.judge(claim)
    if verdict is None:
        yield Reason("claim", f"{asks}; {NOT_JUDGED}", "see 'kubectl get resourceslices'")
        return
    if not room.nodes:
        hint = "see 'kubectl --namespace vcuda get pods'"
        yield Reason("claim", f"{asks}, and no node offers a GPU", hint)
        return
    if verdict.fitting:
        where = ", ".join(verdict.fitting[:_MOST_NODES])
        other = "another condition of the pod" if verdict.exact else "its selector, or another one"
        yield Reason("claim", f"{asks}, which {where} has: {other} keeps the pod from it")
    for node, why in list(verdict.refused.items())[: 0 if verdict.fitting else _MOST_NODES]:
        never = node in verdict.never
        what = f"claim {claim.name}: {node}: {'its GPUs never have that: ' if never else ''}{why}"
        yield Reason("claim", what, _NEVER if never else _HINT)
    more = len(verdict.refused) - _MOST_NODES
    if not verdict.fitting and more > 0:
        yield Reason("claim", f"{more} more nodes have no room either")


def _list(kind: str) -> list[dict[str, Any]]:
    """All objects of the kind. Raises Unanswered, and what a malformed list raises."""
    tree = json.loads(kubectl.raw(f"{_API}/{kind}?limit={_MOST_LISTED}"))
    if tree["metadata"].get("continue"):
        raise Unanswered(f"there are more than {_MOST_LISTED} {kind}")
    return [each for each in tree["items"] if isinstance(each, dict)]


def _unknown(why: str) -> Reason:
    what = f"what its claims ask for, and what is free, is unknown: {why}"
    return Reason("claim", what, "see the cluster page")
