"""What the cluster holds: its nodes' GPUs, and who has them. In memory, kept up to date by events.

A pod holds its GPUs from the moment at which it is assumed on a node, before the API server hears
of it, to its end. Every method is safe to call from any thread; `lock` keeps several together.
"""

from __future__ import annotations

import itertools
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

import numpy as np

from vcuda_oci.placement import Refused

from .ask import Wanted
from .gpu_arrays import WIDEST, GpuArrays
from .objects import NodeFacts
from .place import Placed, decided, place

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from vcuda_oci.allocation import GpuShare
    from vcuda_oci.placement import Gpu

    from .ask import PodAsk
    from .gpu_arrays import Rows
    from .objects import PodFacts

# A binding that nobody knows the end of counts for so long, by the monotonic clock.
UNKNOWN_SECONDS = 120.0
_MOST_ANSWERS = 16
_MOST_ASKS = 1000
_MOST_ENDED = 10_000
_ANY = Wanted()


@dataclass
class Assumed:
    """A pod that is being bound. bound: since when (monotonic) it is known to be, and only the
    event that says so is on its way; None: nobody knows yet."""

    placed: Placed
    bound: float | None = None


@dataclass
class Entry:
    """A node. holds: of each pod by its UID. answers: to asks that the arrays cannot answer, by
    `Cluster.number`, until something changes here: (reason, whether it never fits), or None where
    it fits."""

    facts: NodeFacts
    row: int
    holds: dict[str, list[GpuShare]] = field(default_factory=dict)
    answers: dict[int, tuple[str, bool] | None] = field(default_factory=dict)

    @property
    def taken(self) -> list[GpuShare]:
        return [share for shares in self.holds.values() for share in shares]


class Cluster:
    """order: "binpack" or "spread", where a pod says nothing."""

    def __init__(self, order: str) -> None:
        self.order, self.lock = order, threading.RLock()
        self.nodes: dict[str, Entry] = {}
        self.pods: dict[str, PodFacts] = {}
        self.assumed: dict[str, dict[str, Assumed]] = {}
        self.arrays = GpuArrays()
        self.wide: set[str] = set()  # the nodes that the arrays don't tell
        self._unknown: dict[tuple[str, str], float] = {}  # until when, the earliest first
        self._rows: dict[str, int] = {}
        self._on: dict[str, dict[str, PodFacts]] = {}
        self._ended: dict[str, None] = {}
        self._numbers: dict[PodAsk, int] = {}
        self._next_number = itertools.count()

    def put_node(self, facts: NodeFacts) -> None:
        with self.lock:
            entry = self.nodes.get(facts.name)
            if entry is None:
                entry = self.nodes[facts.name] = Entry(facts, self.arrays.add())
                self._rows[facts.name] = entry.row
            elif entry.facts == facts:
                return
            entry.facts = facts
            self.wide.discard(facts.name)
            if len(facts.usable) > WIDEST:
                self.wide.add(facts.name)
            self.arrays.put_gpus(entry.row, () if facts.name in self.wide else facts.usable)
            entry.holds.clear()
            pods = self._on.get(facts.name, {}).values()
            # What was decided stands; what has to be guessed goes round it.
            for pod in sorted(pods, key=lambda pod: (pod.decision is None, pod.uid)):
                entry.holds[pod.uid] = self._held(pod, entry)
            for uid, places in self.assumed.items():
                if facts.name in places:
                    entry.holds[uid] = places[facts.name].placed.holds
            self._settle(entry)

    def drop_node(self, name: str) -> None:
        with self.lock:
            entry = self.nodes.pop(name, None)
            if entry:
                del self._rows[name]
                self.wide.discard(name)
                self.arrays.remove(entry.row)

    def put_pod(self, pod: PodFacts) -> None:
        with self.lock:
            if pod.finished:
                self.end_pod(pod.uid)
            if pod.uid in self._ended:
                return
            known = self.pods.get(pod.uid)
            # What it got stands: whoever may write the pod may change its annotations afterwards.
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
            if entry:
                entry.holds[pod.uid] = self._held(pod, entry) if assumed else held
                self._settle(entry)

    def end_pod(self, uid: str) -> None:
        """It is gone or over, and does not come back: a call that binds it may still be on."""
        with self.lock:
            self._drop_pod(uid)
            self._ended[uid] = None
            if len(self._ended) > _MOST_ENDED:
                del self._ended[next(iter(self._ended))]

    def keep_pods(self, uids: Collection[str], since: float) -> None:
        """A list that was begun at `since` (monotonic) has these pods and no others."""
        with self.lock:
            for uid in [uid for uid in self.pods if uid not in uids]:
                self._drop_pod(uid)
            for uid, places in list(self.assumed.items()):
                # Bound before the list was begun, and not bound in it: it is gone.
                if any(each.bound is not None and each.bound < since for each in places.values()):
                    self._forget(uid)

    def keep_nodes(self, names: Collection[str]) -> None:
        with self.lock:
            for name in [name for name in self.nodes if name not in names]:
                self.drop_node(name)

    def assume(self, uid: str, node: str, placed: Placed, now: float) -> bool:
        """Count `placed` from now on; `confirm` or `undo` must follow, or it ends by itself.

        False: the pod has ended.
        """
        with self.lock:
            if uid in self._ended:
                return False
            self.assumed.setdefault(uid, {})[node] = Assumed(placed)
            self._unknown.pop((uid, node), None)
            self._unknown[uid, node] = now + UNKNOWN_SECONDS
            entry = self.nodes[node]
            entry.holds[uid] = placed.holds
            self._settle(entry)
            return True

    def confirm(self, uid: str, node: str, now: float) -> None:
        """The API server has bound the pod to this node, so to no other."""
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
                self._release(uid, node)
            if not places:
                self.assumed.pop(uid, None)

    def expire(self, now: float) -> None:
        """Give up what is assumed for too long without an answer."""
        with self.lock:
            while self._unknown:
                (uid, node), until = next(iter(self._unknown.items()))
                if until > now:
                    break
                self.undo(uid, node)

    def find(self, entry: Entry, ask: PodAsk) -> Placed | Refused:
        """Where on this node a pod goes, exactly."""
        return self._choose(entry, ask, entry.taken)

    def number(self, ask: PodAsk) -> int:
        """The same for equal asks: to look up a number takes less than to look up an ask."""
        with self.lock:
            if len(self._numbers) >= _MOST_ASKS:
                self._numbers.clear()
            return self._numbers.setdefault(ask, next(self._next_number))

    def answer(self, entry: Entry, ask: PodAsk, number: int) -> tuple[str, bool] | None:
        """As `Entry.answers` says it. number: of the ask."""
        if number not in entry.answers:
            if len(entry.answers) >= _MOST_ANSWERS:
                entry.answers.clear()
            found = self.find(entry, ask)
            if isinstance(found, Refused):
                never = isinstance(self._choose(entry, ask, []), Refused)
                entry.answers[number] = found.reason, never
            else:
                entry.answers[number] = None
        return entry.answers[number]

    def rows(self, names: Iterable[str]) -> Rows:
        """The nodes' rows of the arrays; -1 of one that is not known."""
        row = self._rows
        return np.array([row.get(name, -1) for name in names], np.intp)

    def _choose(self, entry: Entry, ask: PodAsk, taken: Sequence[GpuShare]) -> Placed | Refused:
        gpus: Sequence[Gpu] = entry.facts.usable
        if ask.wanted != _ANY:
            gpus = [gpu for gpu in gpus if ask.wanted.allows(gpu.uuid, gpu.model)]
        told = entry.facts.told
        return place(gpus, taken, ask, self.order, told.overcommit, told.between)

    def _held(self, pod: PodFacts, entry: Entry) -> list[GpuShare]:
        """What a pod that is bound has. One without a decision of ours is placed by the node, by
        the same rules; where it finds no room there, it does not start either."""
        if pod.ask is None:
            return []
        if pod.decision:
            placed = decided(pod.ask, pod.decision, entry.facts.by_name)
            if placed:
                return placed.holds
        found = self.find(entry, pod.ask)
        return [] if isinstance(found, Refused) else found.holds

    def _drop_pod(self, uid: str) -> None:
        pod = self.pods.pop(uid, None)
        self._forget(uid)
        if pod and pod.node:
            on = self._on.get(pod.node, {})
            on.pop(uid, None)
            if not on:
                self._on.pop(pod.node, None)
            self._release(uid, pod.node)

    def _forget(self, uid: str) -> None:
        for node in list(self.assumed.get(uid, {})):
            self.undo(uid, node)

    def _release(self, uid: str, node: str) -> None:
        entry = self.nodes.get(node)
        if entry and entry.holds.pop(uid, None) is not None:
            self._settle(entry)

    def _settle(self, entry: Entry) -> None:
        entry.answers.clear()
        facts = entry.facts
        if facts.name not in self.wide:
            overcommit = facts.told.overcommit
            self.arrays.put_free(entry.row, facts.usable, entry.taken, overcommit)
