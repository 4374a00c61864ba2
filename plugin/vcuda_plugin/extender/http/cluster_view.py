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
from typing import Any, NamedTuple

from ..cluster.cluster import Cluster
from ..cluster.node_entry import Entry
from ..cluster.objects import NO_GPUS, PodFacts
from ..filter.fit import Verdict, described, fit
from ..model.pod_request import PodAsk
from . import inspect

MOST_NODES = 50
MOST_WAITING = 100
# All reasons of a view together. Later pods are listed without one.
REASONS_SECONDS = 0.3
# Pods with several parts are placed node by node, which takes a fraction of a millisecond for each.
MOST_NODES_ONE_BY_ONE = 200
_NODES_AT_ONCE = 25
# Between two holds of the lock: a thread that takes it again at once leaves it to no other.
_PAUSE_SECONDS = 0.0005
_MOST_REASONS = 5
_MOST_NAMES = 3


class Sight(NamedTuple):
    """What a viewer may see. namespace: the only one; "": all. nodes: whether it may list nodes."""

    namespace: str
    nodes: bool


def view(cluster: Cluster, sight: Sight, after: str = "") -> dict[str, Any]:
    """Describe the cluster as JSON has it, at most MOST_NODES nodes by name after `after`.

    `next`: the last of them if more follow, else "". `waiting`: the MOST_WAITING of highest
    priority; `waiting_count`: all of them.
    """
    with cluster.lock:
        pods, entries = list(cluster.pods.values()), list(cluster.nodes.items())
        bound, trouble = set(cluster.assumed), cluster.quota.trouble
        quota = cluster.quota.report()
    names = sorted(name for name, entry in entries if _has_gpus(entry))
    waiting = [pod for pod in pods if not pod.node and pod.uid not in bound]
    waiting = [pod for pod in waiting if _sees(sight, pod.namespace)]
    shown, following = _some_nodes(cluster, sight, names, after)
    waiting.sort(key=lambda pod: (-pod.priority, pod.namespace, pod.name))
    reasons = _Reasons(cluster, names, sight.nodes)
    return {
        "namespace": sight.namespace,
        "nodes": shown,
        "next": following,
        "waiting": [reasons.of(pod) for pod in waiting[:MOST_WAITING]],
        "waiting_count": len(waiting),
        "quota": [row for row in quota if _sees(sight, row["namespace"])],
        # The text may name other namespaces.
        "quota_trouble": trouble if not sight.namespace else trouble and "quotas cannot be read",
    }


def _sees(sight: Sight, namespace: str) -> bool:
    return not sight.namespace or namespace == sight.namespace


def _has_gpus(entry: Entry) -> bool:
    return bool(entry.facts.reported.gpus) or entry.facts.why not in ("", NO_GPUS)


def _some_nodes(
    cluster: Cluster, sight: Sight, names: Sequence[str], after: str
) -> tuple[list[dict[str, Any]], str]:
    found: list[dict[str, Any]] = []
    for name in names[bisect.bisect_right(names, after) :]:
        with cluster.lock:
            entry = cluster.nodes.get(name)
            if entry is None or not (sight.nodes or _own(cluster, entry, sight)):
                continue
            if len(found) == MOST_NODES:
                return found, str(found[-1]["name"])
            found.append(_node(cluster, entry, sight))
        time.sleep(_PAUSE_SECONDS)
    return found, ""


def _own(cluster: Cluster, entry: Entry, sight: Sight) -> list[str]:
    """UIDs of the pods here that the viewer sees; a pod that is not known yet is seen by none."""
    known = ((uid, cluster.pods.get(uid)) for uid in entry.holds)
    return [uid for uid, pod in known if pod and _sees(sight, pod.namespace)]


def _node(cluster: Cluster, entry: Entry, sight: Sight) -> dict[str, Any]:
    own = _own(cluster, entry, sight)
    gpus = []
    for gpu in inspect.gpus(entry):
        shares = _shares(cluster, entry, own, gpu["uuid"])
        if sight.nodes:
            others = _others(entry, own, gpu["uuid"])
            gpus.append({**gpu, "shares": shares, "others": others})
        elif shares:
            shown = ("uuid", "index", "model", "memory_bytes", "unusable")
            gpus.append({**{key: gpu[key] for key in shown}, "shares": shares})
    return {"name": entry.facts.name, "why": entry.facts.why, "gpus": gpus}


def _shares(cluster: Cluster, entry: Entry, own: Sequence[str], uuid: str) -> list[dict[str, Any]]:
    found = [
        {
            "namespace": cluster.pods[uid].namespace,
            "pod": cluster.pods[uid].name,
            "core_percent": share.core_percent,
            "memory_bytes": share.memory_bytes,
            "being_bound": uid in cluster.assumed,
        }
        for uid in own
        for share in entry.holds[uid]
        if share.uuid == uuid
    ]
    return sorted(found, key=lambda share: (share["namespace"], share["pod"]))


def _others(entry: Entry, own: Sequence[str], uuid: str) -> dict[str, int]:
    """The sum of what pods hold that the viewer does not see."""
    shares = [share for share in entry.taken_without(own) if share.uuid == uuid]
    return {
        "core_percent": sum(share.core_percent for share in shares),
        "memory_bytes": sum(share.memory_bytes for share in shares),
    }


class _Reasons:
    """Why pods wait; equal requests of a namespace are judged once."""

    def __init__(self, cluster: Cluster, names: Sequence[str], shows_nodes: bool) -> None:
        self._cluster, self._names, self._shows_nodes = cluster, names, shows_nodes
        self._known: dict[tuple[str, int], tuple[int, Verdict]] = {}
        self._until = time.monotonic() + REASONS_SECONDS

    def of(self, pod: PodFacts) -> dict[str, Any]:
        """Describe a waiting pod. judged: on how many nodes of `of` the reasons were looked for."""
        judged, verdict = self._verdict(pod.namespace, pod.ask) if pod.ask else (0, Verdict())
        return {
            "namespace": pod.namespace,
            "pod": pod.name,
            "priority": pod.priority,
            "since": pod.created,
            "asked": described(pod.ask) if pod.ask else "",
            "invalid": pod.trouble,
            "fits": len(verdict.fitting),
            "why": self._grouped(verdict),
            "judged": judged,
            "of": len(self._names),
        }

    def _verdict(self, namespace: str, ask: PodAsk) -> tuple[int, Verdict]:
        """Return on how many nodes it was judged, and the result for these."""
        key = namespace, self._cluster.number(ask)
        if key not in self._known:
            self._known[key] = self._judge(ask)
        return self._known[key]

    def _judge(self, ask: PodAsk) -> tuple[int, Verdict]:
        whole, judged = Verdict(), 0
        names, step = self._names, len(self._names)
        if ask.single is None:
            names, step = names[:MOST_NODES_ONE_BY_ONE], _NODES_AT_ONCE
        while judged < len(names) and time.monotonic() < self._until:
            part = fit(self._cluster, ask, names[judged : judged + step])
            whole.fitting += part.fitting
            whole.refused |= part.refused
            whole.never |= part.never
            judged += len(names[judged : judged + step])
            time.sleep(_PAUSE_SECONDS)
        return judged, whole

    def _grouped(self, verdict: Verdict) -> list[dict[str, Any]]:
        """Nodes by reason, the most frequent first; the rarer ones together.

        never: these nodes do not fit the pod even once other pods have ended.
        """
        named: dict[tuple[str, bool], list[str]] = {}
        for reasons, never in ((verdict.refused, False), (verdict.never, True)):
            for node, reason in reasons.items():
                named.setdefault((reason, never), []).append(node)
        groups = sorted(named.items(), key=lambda group: -len(group[1]))
        found = [
            {
                "reason": reason,
                "never": never,
                "nodes": len(nodes),
                "names": nodes[:_MOST_NAMES] if self._shows_nodes else [],
            }
            for (reason, never), nodes in groups[:_MOST_REASONS]
        ]
        if left := sum(len(nodes) for _, nodes in groups[_MOST_REASONS:]):
            found.append({"reason": "other reasons", "never": False, "nodes": left, "names": []})
        return found
