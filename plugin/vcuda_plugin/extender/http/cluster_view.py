"""What the cluster page shows: nodes, shares, waiting pods and why they wait.

Pure but for the clock and the cluster's lock, which no step holds for long: kube-scheduler's calls
wait for it.
A viewer sees names of the namespaces that it may list pods of, and of no other. What other pods
hold of a GPU is a sum without names, for a viewer that may list nodes; another viewer sees only the
nodes and GPUs of its own pods.
"""

from __future__ import annotations

import bisect
import time
from collections.abc import Sequence
from typing import Any

from ..cluster.claims import Claims
from ..cluster.cluster import Cluster
from ..cluster.node_entry import Entry
from ..cluster.objects import NO_GPUS
from . import inspect
from .claims_view import ClaimsView
from .viewer_rights import Sight
from .waiting_view import PAUSE_SECONDS, Reasons

MOST_NODES = 50
MOST_WAITING = 100


def view(
    cluster: Cluster, sight: Sight, after: str = "", claims: Claims | None = None
) -> dict[str, Any]:
    """Describe the cluster as JSON has it, at most MOST_NODES nodes by name after `after`.

    `next`: the last of them if more follow, else "". `waiting`: the MOST_WAITING of highest
    priority, then claims; `waiting_count`: all of them. claims: None: GPUs are not offered by DRA.
    """
    found, devices = claims.read() if claims else ([], [])
    by_claim = ClaimsView(found, devices, sight)
    with cluster.lock:
        pods, entries = list(cluster.pods.values()), list(cluster.nodes.items())
        bound, trouble = set(cluster.assumed), cluster.quota.trouble
        quota = cluster.quota.report()
    names = sorted(name for name, entry in entries if _has_gpus(entry))
    waiting = [pod for pod in pods if not pod.node and pod.uid not in bound]
    waiting = [pod for pod in waiting if sight.sees(pod.namespace)]
    shown, following = _some_nodes(cluster, sight, names, after, by_claim)
    waiting.sort(key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    reasons = Reasons(cluster, names, by_claim.offering, sight.nodes)
    rows = [reasons.of(pod) for pod in waiting[:MOST_WAITING]]
    without = sorted(by_claim.waiting, key=lambda claim: (claim.namespace, claim.pods, claim.name))
    rows += [reasons.of_claim(each, by_claim) for each in without[: MOST_WAITING - len(rows)]]
    return {
        "namespace": sight.namespace,
        "nodes": shown,
        "next": following,
        "waiting": rows,
        "waiting_count": len(waiting) + len(without),
        "trouble": claims.trouble if claims else "",
        "quota": [row for row in quota if sight.sees(row["namespace"])],
        # The text may name other namespaces.
        "quota_trouble": trouble if not sight.namespace else trouble and "quotas cannot be read",
    }


def _has_gpus(entry: Entry) -> bool:
    return bool(entry.facts.reported.gpus) or entry.facts.why not in ("", NO_GPUS)


def _some_nodes(
    cluster: Cluster, sight: Sight, names: Sequence[str], after: str, claims: ClaimsView
) -> tuple[list[dict[str, Any]], str]:
    found: list[dict[str, Any]] = []
    with_claims = claims.nodes
    for name in names[bisect.bisect_right(names, after) :]:
        with cluster.lock:
            entry = cluster.nodes.get(name)
            if entry is None:
                continue
            if not (sight.nodes or name in with_claims or _own(cluster, entry, sight)):
                continue
            if len(found) == MOST_NODES:
                return found, str(found[-1]["name"])
            found.append(_node(cluster, entry, sight, claims))
        time.sleep(PAUSE_SECONDS)
    return found, ""


def _own(cluster: Cluster, entry: Entry, sight: Sight) -> list[str]:
    """UIDs of the pods here that the viewer sees; a pod that is not known yet is seen by none."""
    known = ((uid, cluster.pods.get(uid)) for uid in entry.holds)
    return [uid for uid, pod in known if pod and sight.sees(pod.namespace)]


def _node(cluster: Cluster, entry: Entry, sight: Sight, claims: ClaimsView) -> dict[str, Any]:
    own, name = _own(cluster, entry, sight), entry.facts.name
    gpus = []
    for gpu in inspect.gpus(entry):
        shares = _shares(cluster, entry, own, gpu["uuid"]) + claims.shares(name, gpu["uuid"])
        if sight.nodes:
            core, memory = claims.held(name, gpu["uuid"], unseen=False)
            gpu["core_free"] -= core
            gpu["memory_free_bytes"] -= memory
            gpu["held"] = gpu["held"] or core > 0
            others = _others(entry, own, gpu["uuid"], *claims.held(name, gpu["uuid"], unseen=True))
            gpus.append({**gpu, "shares": shares, "others": others})
        elif shares:
            shown = ("uuid", "index", "model", "memory_bytes", "unusable")
            gpus.append({**{key: gpu[key] for key in shown}, "shares": shares})
    return {"name": name, "why": entry.facts.why, "gpus": gpus}


def _shares(cluster: Cluster, entry: Entry, own: Sequence[str], uuid: str) -> list[dict[str, Any]]:
    found = [
        {
            "namespace": cluster.pods[uid].namespace,
            "pod": cluster.pods[uid].name,
            "claim": "",
            "core_percent": share.core_percent,
            "memory_bytes": share.memory_bytes,
            "being_bound": uid in cluster.assumed,
        }
        for uid in own
        for share in entry.holds[uid]
        if share.uuid == uuid
    ]
    return sorted(found, key=lambda share: (share["namespace"], share["pod"]))


def _others(entry: Entry, own: Sequence[str], uuid: str, core: int, memory: int) -> dict[str, int]:
    """The sum of what the viewer does not see. core, memory: of claims; the rest is of pods."""
    shares = [share for share in entry.taken_without(own) if share.uuid == uuid]
    return {
        "core_percent": core + sum(share.core_percent for share in shares),
        "memory_bytes": memory + sum(share.memory_bytes for share in shares),
    }
