"""Why pods and claims wait, for the cluster page: by reason, with the nodes that it holds for."""

from __future__ import annotations

import time
from collections.abc import Container, Mapping, Sequence
from typing import Any

from vcuda_hook.claims.objects import Claim

from ..cluster.cluster import Cluster
from ..cluster.objects import PodFacts
from ..filter.fit import Verdict, described, fit
from ..model.pod_request import PodAsk
from .claims_view import ClaimsView

# All reasons of a view together. Later pods are listed without one.
REASONS_SECONDS = 0.3
# Pods with several parts are placed node by node, which takes a fraction of a millisecond for each.
MOST_NODES_ONE_BY_ONE = 200
_NODES_AT_ONCE = 25
# Between two holds of the lock: a thread that takes it again at once leaves it to no other.
PAUSE_SECONDS = 0.0005
_MOST_REASONS = 5
_MOST_NAMES = 3
_BY_DRA = "its GPUs are for claims, by DRA"


class Reasons:
    """Equal requests of a namespace are judged once.

    by_dra: the nodes that kube-scheduler refuses for a pod's resources, since they offer none.
    """

    def __init__(
        self, cluster: Cluster, names: Sequence[str], by_dra: Container[str], shows_nodes: bool
    ) -> None:
        self._cluster, self._shows_nodes = cluster, shows_nodes
        self._names = [name for name in names if name not in by_dra]
        self._by_dra = [name for name in names if name in by_dra]
        self._known: dict[tuple[str, int], tuple[int, Verdict]] = {}
        self._until = time.monotonic() + REASONS_SECONDS

    def of(self, pod: PodFacts) -> dict[str, Any]:
        """Describe a waiting pod. judged: on how many nodes of `of` the reasons were looked for."""
        judged, verdict = self._verdict(pod.namespace, pod.ask) if pod.ask else (0, Verdict())
        return {
            "namespace": pod.namespace,
            "pod": pod.name,
            "claim": "",
            "priority": pod.priority,
            "since": pod.created,
            "asked": described(pod.ask) if pod.ask else "",
            "invalid": pod.trouble,
            "note": "",
            "fits": len(verdict.fitting),
            "why": self._grouped({**verdict.refused, **verdict.never}, verdict.never),
            "judged": judged,
            "of": len(self._names) + len(self._by_dra),
        }

    def of_claim(self, claim: Claim, claims: ClaimsView) -> dict[str, Any]:
        """Describe a waiting claim like a pod."""
        in_time = time.monotonic() < self._until
        judged = len(claims.offering) if in_time else 0
        verdict = claims.verdict(claim) if in_time else None
        return {
            "namespace": claim.namespace,
            "pod": ", ".join(claim.pods) or claim.name,
            "claim": claim.name,
            "priority": 0,
            "since": claim.created,
            "asked": claim.text,
            "invalid": "",
            "note": claims.note(claim) if judged else "",
            "fits": len(verdict.fitting) if verdict else 0,
            "why": self._grouped(verdict.refused, verdict.never) if verdict else [],
            "judged": judged,
            "of": len(claims.offering),
        }

    def _verdict(self, namespace: str, ask: PodAsk) -> tuple[int, Verdict]:
        """Return on how many nodes it was judged, and the result for these."""
        key = namespace, self._cluster.number(ask)
        if key not in self._known:
            self._known[key] = self._judge(ask)
        return self._known[key]

    def _judge(self, ask: PodAsk) -> tuple[int, Verdict]:
        whole, judged = Verdict(never=dict.fromkeys(self._by_dra, _BY_DRA)), 0
        names, step = self._names, len(self._names)
        if ask.single is None:
            names, step = names[:MOST_NODES_ONE_BY_ONE], _NODES_AT_ONCE
        while judged < len(names) and time.monotonic() < self._until:
            part = fit(self._cluster, ask, names[judged : judged + step])
            whole.fitting += part.fitting
            whole.refused |= part.refused
            whole.never |= part.never
            judged += len(names[judged : judged + step])
            time.sleep(PAUSE_SECONDS)
        return judged + len(self._by_dra), whole

    def _grouped(self, reasons: Mapping[str, str], never: Container[str]) -> list[dict[str, Any]]:
        """Nodes by reason, the most frequent first; the rarer ones together.

        never: the nodes that do not fit even once others have ended.
        """
        named: dict[tuple[str, bool], list[str]] = {}
        for node, reason in reasons.items():
            named.setdefault((reason, node in never), []).append(node)
        groups = sorted(named.items(), key=lambda group: (-len(group[1]), group[0][1]))
        found = [
            {
                "reason": reason,
                "never": is_never,
                "nodes": len(nodes),
                "names": nodes[:_MOST_NAMES] if self._shows_nodes else [],
            }
            for (reason, is_never), nodes in groups[:_MOST_REASONS]
        ]
        if left := sum(len(nodes) for _, nodes in groups[_MOST_REASONS:]):
            found.append({"reason": "other reasons", "never": False, "nodes": left, "names": []})
        return found
