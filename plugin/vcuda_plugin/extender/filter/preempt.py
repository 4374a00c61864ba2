"""Choose the pods to evict so that a pod fits: on each node the fewest, of the lowest priority.

kube-scheduler chooses victims by sums over the whole node, which seldom frees one GPU. This module
may therefore replace its victims among the pods that hold GPUs. Victims that hold no GPU stay,
because they free other resources.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Mapping
from typing import NamedTuple

from vcuda_oci.placement.choose import Refused

from ..cluster.cluster import Cluster
from ..cluster.node_entry import Entry
from ..model.pod_request import PodAsk

Fits = Callable[[Collection[str]], bool]

# Tries in one call. The remaining nodes are left out, and the scheduler uses another node.
MOST_TRIES = 10_000


class Victims(NamedTuple):
    """The pods to evict on one node.

    uids: of pods. violations: the most PodDisruptionBudgets violated, by the scheduler's count.
    """

    uids: tuple[str, ...]
    violations: int = 0


class _TooManyTries(Exception):
    pass


def preempt(
    cluster: Cluster, ask: PodAsk, priority: int, given: Mapping[str, Victims]
) -> dict[str, Victims]:
    """Return the victims by node, for the given nodes on which the pod then fits in its quota."""
    found, tries = {}, [0]
    if cluster.quota.trouble:
        return {}
    for name, victims in given.items():
        # Lock for each node separately, so that binds can run in between.
        with cluster.lock:
            entry = cluster.nodes.get(name)
            try:
                chosen = _on_node(cluster, entry, ask, priority, victims, tries) if entry else None
            except _TooManyTries:
                break
        if chosen:
            found[name] = chosen
    return found


def _on_node(
    cluster: Cluster, entry: Entry, ask: PodAsk, priority: int, given: Victims, tries: list[int]
) -> Victims | None:
    lower = {
        uid: pod.priority
        for uid, shares in entry.holds.items()
        if shares
        and (pod := cluster.pods.get(uid))
        and pod.node == entry.facts.name
        and pod.priority < priority
    }

    def fits(removed: Collection[str]) -> bool:
        tries[0] += 1
        if tries[0] > MOST_TRIES:
            raise _TooManyTries
        if cluster.quota.over(ask, entry.facts.group, cluster.quota.held(ask.namespace, removed)):
            return False
        return not isinstance(cluster.find(entry, ask, removed), Refused)

    if fits(()):
        return given if given.uids else None  # victims for other resources than GPUs
    steps = (lowest(lower, most) for most in sorted(set(lower.values())))
    may = next((uids for uids in steps if fits(uids)), None)
    if may is None:
        return None

    def cost(uids: Collection[str]) -> tuple[int, int, int, int, list[str]]:
        """Return a sort key; the smallest is best. `may` bounds the highest priority evicted."""
        most = max(lower[uid] for uid in uids)
        new = sum(1 for uid in uids if uid not in given.uids)
        return most, len(uids), new, sum(lower[uid] for uid in uids), sorted(uids)

    def keeping(uid: str) -> tuple[int, bool, str]:
        """Sort key: pods of high priority stay first, then pods that are not among the victims."""
        return -lower[uid], uid in given.uids, uid

    holders: dict[str, set[str]] = {}
    for uid in may:
        for share in entry.holds[uid]:
            holders.setdefault(share.uuid, set()).add(uid)
    dear = {uid: max(cost(on) for on in holders.values() if uid in on) for uid in may}
    choices = [
        least(may, sorted(may, key=keeping), fits),
        # Keep the pods of the costliest GPUs first, so that what is freed is on one GPU.
        least(may, sorted(sorted(may, key=keeping), key=dear.__getitem__, reverse=True), fits),
    ]
    for on in holders.values():
        if fits(on):
            choices.append(least(on, sorted(on, key=keeping), fits))
    best = min(choices, key=cost)
    others = [uid for uid in given.uids if not entry.holds.get(uid)]
    kept = len(others) + sum(1 for uid in best if uid in given.uids)
    uids = (*others, *sorted(best, key=lambda uid: (-lower[uid], uid)))
    return Victims(uids, min(given.violations, kept))


def lowest(priorities: Mapping[str, int], most: int) -> list[str]:
    return [uid for uid, priority in priorities.items() if priority <= most]


def least(may: Collection[str], keep_first: Iterable[str], fits: Fits) -> set[str]:
    """Return the pods of `may` to evict, after keeping as many as possible in the given order."""
    removed = set(may)
    for uid in keep_first:
        if fits(removed - {uid}):
            removed.discard(uid)
    return removed
