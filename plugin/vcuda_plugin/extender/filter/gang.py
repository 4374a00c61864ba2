"""Pods of one PodGroup, which kube-scheduler filters one after the other before it binds any.

Its snapshot has the pods of the group that it has placed so far, and the extender does not learn
which node it took for them: each would fit alone, and the last bindings would fail. So a pod of a
group gets one node only, and holds its GPUs there from its filter call on. Once a pod of the group
fits nowhere, all of them let go: otherwise a group that never fits would hold GPUs for good. They
also let go when a pod is filtered again, which begins another attempt, and after HELD_SECONDS. Pods
that are bound nevertheless, because the group's minCount is met, are placed by their bindings.
Source: Kubernetes 1.36, pkg/scheduler/schedule_one_podgroup.go, with the feature gates
GenericWorkload and GangScheduling.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence
from typing import Any

from ..cluster.cluster import Cluster
from ..cluster.objects import PodFacts
from ..model.place import Placed
from ..model.pod_request import PodAsk, mapping
from .fit import Verdict, fit
from .score import scores

# From a pod's filter call to its binding: the rest of the group is filtered in between.
HELD_SECONDS = 10.0

Group = tuple[str, str]  # namespace and name


def group_of(pod: Mapping[str, Any]) -> Group | None:
    """The PodGroup that the pod is scheduled with. None: it is scheduled alone."""
    name = mapping(mapping(pod.get("spec")).get("schedulingGroup")).get("podGroupName")
    namespace = str(mapping(pod.get("metadata")).get("namespace"))
    return (namespace, name) if isinstance(name, str) and name else None


class Gangs:
    """What pods of groups hold between their filter calls and their bindings."""

    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        # By UID: the pod's group, its node, until when it holds its GPUs (monotonic).
        self._held: dict[str, tuple[Group, str, float]] = {}

    def expire(self, now: float) -> None:
        """Let go what was held for too long."""
        for uid in [uid for uid, (_, _, until) in self._held.items() if until < now]:
            self._free(uid)

    def fit(self, pod: PodFacts, group: Group, ask: PodAsk, names: Sequence[str]) -> Verdict:
        """The one node on which the pod holds its GPUs from now on, or why none fits."""
        if pod.uid in self._held:
            self._free_all(group)
        verdict = fit(self._cluster, ask, names)
        for node in self._ranked(ask, verdict.fitting):
            with self._cluster.lock:
                entry = self._cluster.nodes.get(node)
                placed = self._cluster.find(entry, ask) if entry else None
                now = time.monotonic()
                if not isinstance(placed, Placed):
                    continue  # it has changed meanwhile
                if self._cluster.assume(pod, node, placed, now):
                    self._held[pod.uid] = group, node, now + HELD_SECONDS
            return Verdict([node])
        self._free_all(group)
        return verdict

    def bound(self, uid: str) -> None:
        """Note that a pod is being bound: what it holds is its binding's from now on."""
        self._held.pop(uid, None)

    def _ranked(self, ask: PodAsk, names: Sequence[str]) -> list[str]:
        ranked = sorted(zip(scores(self._cluster, ask, names), names), key=lambda pair: -pair[0])
        return [name for _, name in ranked]

    def _free_all(self, group: Group) -> None:
        for uid in [uid for uid, (of, _, _) in self._held.items() if of == group]:
            self._free(uid)

    def _free(self, uid: str) -> None:
        _, node, _ = self._held.pop(uid)
        self._cluster.undo(uid, node)
