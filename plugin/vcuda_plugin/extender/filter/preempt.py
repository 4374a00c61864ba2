"""Who must go so that a pod fits: on each node the fewest pods, of the lowest priority.

kube-scheduler names victims by sums over the whole node, which seldom frees one GPU. So of the pods
that hold GPUs others may be named here; those of its victims that hold none stay victims, for what
else they free.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from vcuda_oci.placement import Refused

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Mapping

    from ..cluster.cluster import Cluster
    from ..cluster.node_entry import Entry
    from ..model.pod_request import PodAsk

    Fits = Callable[[Collection[str]], bool]

# Of one call: a node that would take more is left out, and the scheduler takes another.
MOST_TRIES = 10_000


@dataclass(frozen=True)
class Victims:
    """uids: of pods. violations: of how many PodDisruptionBudgets at most, as the scheduler
    counted."""

    uids: tuple[str, ...]
    violations: int = 0


class _TooManyTries(Exception):
    pass


def preempt(
    cluster: Cluster, ask: PodAsk, priority: int, given: Mapping[str, Victims]
) -> dict[str, Victims]:
    """The victims on each of the given nodes on which the pod then fits, within its quota."""
    found, tries = {}, [0]
    if cluster.quota.trouble:
        return {}
    for name, victims in given.items():
        # Not for all nodes at once: bindings go on between them.
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

    def fits(gone: Collection[str]) -> bool:
        tries[0] += 1
        if tries[0] > MOST_TRIES:
            raise _TooManyTries
        if cluster.quota.over(ask, entry.facts.group, cluster.quota.held(ask.namespace, gone)):
            return False
        return not isinstance(cluster.find(entry, ask, gone), Refused)

    if fits(()):
        return given if given.uids else None  # for something else than GPUs
    steps = (lowest(lower, most) for most in sorted(set(lower.values())))
    may = next((uids for uids in steps if fits(uids)), None)
    if may is None:
        return None

    def cost(uids: Collection[str]) -> tuple[int, int, int, int, list[str]]:
        """Of these the least is best. All of one priority at most: that is what `may` says."""
        most = max(lower[uid] for uid in uids)
        new = sum(1 for uid in uids if uid not in given.uids)
        return most, len(uids), new, sum(lower[uid] for uid in uids), sorted(uids)

    def keeping(uid: str) -> tuple[int, bool, str]:
        """Which may stay first: the most important, and whom the scheduler would let stay."""
        return -lower[uid], uid in given.uids, uid

    holders: dict[str, set[str]] = {}
    for uid in may:
        for share in entry.holds[uid]:
            holders.setdefault(share.uuid, set()).add(uid)
    dear = {uid: max(cost(on) for on in holders.values() if uid in on) for uid in may}
    choices = [
        least(may, sorted(may, key=keeping), fits),
        # Keep whole GPUs' worth of pods, the dearest first: what is freed is then together.
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
    """Of `may`, who must go: as many as can be kept, in this order, are."""
    gone = set(may)
    for uid in keep_first:
        if fits(gone - {uid}):
            gone.discard(uid)
    return gone
