"""The cluster's GPUs and the pods that hold them, in memory, kept up to date by events.

A pod holds its GPUs from the moment at which it is assumed on a node, before the API server gets
the binding, to its end. Every method is safe to call from any thread; hold `lock` to make several
calls atomic.
"""

from __future__ import annotations

import itertools
import threading
from collections import Counter
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.policies import AUTO, MIG
from vcuda_oci.placement.choose import Refused
from vcuda_oci.placement.rules import Rules

from ..model.gpu_arrays import WIDEST, GpuArrays, Rows
from ..model.instances import place_instances
from ..model.place import Placed, place
from ..model.pod_request import ANY, PodAsk
from ..model.tenancy import NO_TENANCY
from ..quota.quota_usage import NO_GROUP, Quota
from .node_entry import Assumed, Entry
from .objects import NodeFacts, PodFacts, decided

# How long a binding with an unknown outcome counts, by the monotonic clock.
UNKNOWN_SECONDS = 120.0
_MOST_ANSWERS = 16
_MOST_ASKS = 1000
_MOST_ENDED = 10_000
# Why a GPU's tenants keep a pod away.
_EXCLUDE = ("labels exclude", "the other isolation excludes")


class Cluster:
    """rules: of every node, except what a node says for itself.

    changes: counts the changes of what nodes have or hold.
    """

    def __init__(self, rules: Rules) -> None:
        self.rules, self.lock = rules, threading.RLock()
        self.nodes: dict[str, Entry] = {}
        self.pods: dict[str, PodFacts] = {}
        self.assumed: dict[str, dict[str, Assumed]] = {}
        self.arrays, self.quota = GpuArrays(), Quota()
        self._labelled = False  # whether any pod ever had labels that restrict its neighbours
        self._slices = Counter[str]()  # on how many nodes each named slice is
        self.wide: set[str] = set()  # nodes with too many GPUs for the arrays, or GPUs in MIG mode
        self._unknown: dict[tuple[str, str], float] = {}  # expiry, the earliest first
        self._rows: dict[str, int] = {}
        self._on: dict[str, dict[str, PodFacts]] = {}
        self._ended: dict[str, None] = {}
        self._numbers: dict[PodAsk, int] = {}
        self._next_number = itertools.count()
        self.changes = 0

    def put_node(self, facts: NodeFacts) -> None:
        with self.lock:
            entry = self.nodes.get(facts.name)
            if entry is None:
                entry = self.nodes[facts.name] = Entry(facts, self.arrays.add())
                self._rows[facts.name] = entry.row
            elif entry.facts == facts:
                return
            entry.facts = facts
            pods = self._on.get(facts.name, {})
            assumed = {
                uid: places[facts.name].placed.holds
                for uid, places in self.assumed.items()
                if facts.name in places
            }
            self.quota.put_node(facts.name, entry.row, facts.group, pods.keys() | assumed)
            self.wide.discard(facts.name)
            if len(facts.usable) > WIDEST or facts.divisible:
                self.wide.add(facts.name)
            self.arrays.put_gpus(entry.row, () if facts.name in self.wide else facts.usable)
            entry.release_all()
            # Pods with a decision first: the others are placed on what is left.
            for pod in sorted(pods.values(), key=lambda pod: (pod.decision is None, pod.uid)):
                entry.hold(pod.uid, self._held(pod, entry))
            for uid, shares in assumed.items():
                entry.hold(uid, shares)
            self._settle(entry)

    def drop_node(self, name: str) -> None:
        with self.lock:
            entry = self.nodes.pop(name, None)
            if entry:
                del self._rows[name]
                self._put_slices(entry, {})
                self.wide.discard(name)
                self.arrays.remove(entry.row)

    def put_pod(self, pod: PodFacts) -> None:
        with self.lock:
            if pod.finished:
                self.end_pod(pod.uid)
            if pod.uid in self._ended:
                return
            known = self.pods.get(pod.uid)
            # Ignore later changes: any client that may write the pod may change its annotations.
            if known and known.node:
                return
            self.pods[pod.uid] = pod
            if not pod.node:
                return
            self._on.setdefault(pod.node, {})[pod.uid] = pod
            entry = self.nodes.get(pod.node)
            assumed = self.assumed.get(pod.uid, {}).get(pod.node)
            held = self._held(pod, entry) if entry else []
            if assumed and assumed.placed.holds == held:
                self.confirm(pod.uid, pod.node, 0)
                del self.assumed[pod.uid]
                return
            self._forget(pod.uid)
            self._charge(pod, pod.node)
            if entry:
                entry.hold(pod.uid, self._held(pod, entry) if assumed else held)
                self._settle(entry)

    def end_pod(self, uid: str) -> None:
        """Drop a deleted or finished pod, and refuse it from now on: a bind of it may still run."""
        with self.lock:
            self._drop_pod(uid)
            self._ended[uid] = None
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def keep_pods(self, uids: Collection[str], since: float) -> None:
        """Drop all pods but `uids`, the result of a list that began at `since` (monotonic)."""
        with self.lock:
            for uid in [uid for uid in self.pods if uid not in uids]:
                self._drop_pod(uid)
            for uid, places in list(self.assumed.items()):
                # Bound before the list began, but not in it: the pod was deleted.
                if any(each.bound is not None and each.bound < since for each in places.values()):
                    self._forget(uid)

    def keep_nodes(self, names: Collection[str]) -> None:
        with self.lock:
            for name in [name for name in self.nodes if name not in names]:
                self.drop_node(name)

    def assume(self, pod: PodFacts, node: str, placed: Placed, now: float) -> bool:
        """Count `placed` from now on, in the namespace's quota too. False: the pod has ended.

        The caller follows with `confirm` or `undo`; otherwise it expires.
        """
        uid = pod.uid
        with self.lock:
            if uid in self._ended:
                return False
            self._charge(pod, node)
            self.pods.setdefault(uid, pod)  # no event has reported it yet
            self.assumed.setdefault(uid, {})[node] = Assumed(placed)
            self._unknown.pop((uid, node), None)
            self._unknown[uid, node] = now + UNKNOWN_SECONDS
            entry = self.nodes[node]
            entry.hold(uid, placed.holds)
            self._settle(entry)
            return True

    def confirm(self, uid: str, node: str, now: float) -> None:
        """Record that the API server has bound the pod to this node, and undo all other nodes."""
        with self.lock:
            for other in [name for name in self.assumed.get(uid, {}) if name != node]:
                self.undo(uid, other)
            if node in self.assumed.get(uid, {}):
                self.assumed[uid][node].bound = now
                self._unknown.pop((uid, node), None)

    def undo(self, uid: str, node: str) -> None:
        with self.lock:
            places = self.assumed.get(uid, {})
            if places.pop(node, None):
                self._unknown.pop((uid, node), None)
                self.quota.release(uid, node)
                self._release(uid, node)
            if not places:
                self.assumed.pop(uid, None)

    def expire(self, now: float) -> None:
        """Undo what was assumed too long ago without an answer."""
        with self.lock:
            while self._unknown:
                (uid, node), until = next(iter(self._unknown.items()))
                if until > now:
                    break
                self.undo(uid, node)

    def hold(self, uid: str, shares: list[GpuShare]) -> None:
        """Replace what a bound pod holds, as after a move on its node."""
        with self.lock:
            entry = self.nodes[self.pods[uid].node]
            entry.hold(uid, shares)
            self._settle(entry)

    def find(self, entry: Entry, ask: PodAsk, removed: Collection[str] = ()) -> Placed | Refused:
        """Place the pod on this node exactly, as if the pods with the UIDs `removed` had ended."""
        closed = self._closed(entry, ask, removed)
        found = self._choose(entry, ask, removed, closed)
        if not closed or not isinstance(found, Refused):
            return found
        by = {word: [uuid for uuid, each in closed.items() if each == word] for word in _EXCLUDE}
        why = [f"{word} {', '.join(uuids)}" for word, uuids in by.items() if uuids]
        return Refused("; ".join([found.reason, *why]))

    def number(self, ask: PodAsk) -> int:
        """Return the same number for equal requests. A number is a faster key than a request."""
        with self.lock:
            if len(self._numbers) >= _MOST_ASKS:
                self._numbers.clear()
            return self._numbers.setdefault(ask, next(self._next_number))

    def answer(self, entry: Entry, ask: PodAsk, number: int) -> tuple[str, bool] | None:
        """Return the cached answer of `Entry.answers`, or compute it. number: of the request."""
        if ask.tenancy.slice:
            entry.answers.pop(number, None)  # other nodes' changes affect it too
        if number not in entry.answers:
            if len(entry.answers) >= _MOST_ANSWERS:
                entry.answers.clear()
            found = self.find(entry, ask)
            if isinstance(found, Refused):
                never = isinstance(self._choose(entry, ask, entry.holds), Refused)
                entry.answers[number] = found.reason, never
            else:
                entry.answers[number] = None
        return entry.answers[number]

    def rows(self, names: Iterable[str]) -> Rows:
        """Return the nodes' rows in the arrays; -1 for an unknown node."""
        return np.fromiter(map(self._rows.get, names, itertools.repeat(-1)), np.intp)

    def _closed(self, entry: Entry, ask: PodAsk, removed: Collection[str]) -> dict[str, str]:
        """Return the GPUs with tenants that the pod may not join, or outside of its slice, with one
        of _EXCLUDE."""
        mine, labels, isolation = ask.tenancy, *_EXCLUDE
        tenants = entry.tenants(self.pods, removed) if self._labelled or any(mine) else {}
        closed = {
            uuid: labels if mine.isolation_beside(others) else isolation
            for uuid, others in tenants.items()
            if not mine.beside(others)
        }
        if mine.slice in self._slices:
            own = entry.slices.get(mine.slice, set())
            others = {g.uuid for g in entry.facts.usable} - own
            closed = {**dict.fromkeys(sorted(others), labels), **closed}
        return closed

    def _choose(
        self, entry: Entry, ask: PodAsk, removed: Collection[str], closed: Collection[str] = ()
    ) -> Placed | Refused:
        def may_use(some: Sequence[Gpu]) -> list[Gpu]:
            found = [gpu for gpu in some if gpu.uuid not in closed]
            if ask.wanted == ANY:
                return found
            return [gpu for gpu in found if ask.wanted.allows(gpu.uuid, gpu.model)]

        facts, reported = entry.facts, entry.facts.reported
        gpus, rules = may_use(facts.usable), reported.rules(self.rules)
        if ask.tenancy.mps:  # as the node does: fences/mps_claim.py
            gpus, rules = [gpu for gpu in gpus if gpu.mig is None], rules.once()
        found: Placed | Refused = Refused("")
        if ask.isolation != MIG:
            taken = entry.taken if not removed else entry.taken_without(removed)
            found = place(gpus, taken, ask, rules, reported.between)
        if ask.isolation == MIG or (
            isinstance(found, Refused) and ask.isolation == AUTO and facts.divisible
        ):
            held, ended = entry.taken_without(removed), entry.taken_of(removed)
            return place_instances(may_use(facts.divisible), held, ended, ask, reported)
        return found

    def _held(self, pod: PodFacts, entry: Entry) -> list[GpuShare]:
        """Return what a bound pod holds.

        The node places a pod without a decision by the same rules. Where the pod has no room, it
        does not start on the node either.
        """
        if pod.ask is None:
            return []
        if pod.decision:
            placed = decided(pod.ask, pod.decision, entry.facts)
            if placed:
                return placed.holds
        found = self.find(entry, pod.ask)
        return [] if isinstance(found, Refused) else found.holds

    def _charge(self, pod: PodFacts, node: str) -> None:
        core = pod.ask.most_core if pod.ask else 0
        self._labelled |= bool(pod.ask and any(pod.ask.tenancy))
        entry = self.nodes.get(node)
        group = entry.facts.group if entry else NO_GROUP
        self.quota.charge(pod.uid, node, group, pod.namespace, core)

    def _drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self._forget(uid)
        if pod and pod.node:
            on = self._on.get(pod.node, {})
            on.pop(uid, None)
            if not on:
                self._on.pop(pod.node, None)
            self.quota.release(uid, pod.node)
            self._release(uid, pod.node)

    def _forget(self, uid: str) -> None:
        for node in list(self.assumed.get(uid, {})):
            self.undo(uid, node)

    def _release(self, uid: str, node: str) -> None:
        entry = self.nodes.get(node)
        if entry and entry.release(uid):
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        entry.answers.clear()
        self.changes += 1
        facts, slices = entry.facts, dict[str, set[str]]()
        tenants = entry.tenants(self.pods) if self._labelled else {}
        for uuid, each in tenants.items():
            for name in {tenant.slice for tenant in each} - {""}:
                slices.setdefault(name, set()).add(uuid)
        self._put_slices(entry, slices)
        if facts.name not in self.wide:
            closed = [uuid for uuid, others in tenants.items() if not NO_TENANCY.beside(others)]
            rules = facts.reported.rules(self.rules)
            self.arrays.put_free(entry.row, facts.usable, entry.taken, rules, closed)

    def _put_slices(self, entry: Entry, slices: dict[str, set[str]]) -> None:
        if slices or entry.slices:
            self._slices.update(slices.keys())
            self._slices.subtract(entry.slices.keys())
            self._slices = +self._slices  # without the slices that are on no node
        entry.slices = slices
