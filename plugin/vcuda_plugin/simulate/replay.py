"""Replay a trace under one policy with the extender's filter, scores and bind.

A pod that fits nowhere waits. Whenever a pod ends, the waiting pods are tried again, by priority
and then by arrival. A pod that arrives is tried at once, even while others wait. Time is that of
the trace: a pod starts when it is bound.
"""

from __future__ import annotations

import heapq
import time
from collections.abc import Callable, Coroutine, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from vcuda_oci.ledger import decision
from vcuda_oci.model import names
from vcuda_oci.placement.rules import Rules

from ..extender.bind.bind import Binder
from ..extender.cluster.cluster import Cluster
from ..extender.cluster.objects import NodeFacts, pod_of
from ..extender.filter.extender_api import Binding
from ..extender.filter.fit import Verdict, fit
from ..extender.filter.score import free_of
from ..extender.model.pod_request import PodAsk
from ..extender.quota.quota_limits import Limit
from ..extender.quota.quota_usage import EXCEEDED
from . import rebalancing
from .fragmentation import Mix
from .policies import Policy
from .trace_pod import SETTINGS, TracePod

REPORT_EVERY_SECONDS = 10.0


@dataclass
class Outcome:
    """The result of a replay.

    waited: seconds of the trace, for each placed pod. placed: GPU UUIDs, by the pod's name.
    allocated, fragmented: in GPUs, after each arrival. took: seconds of each filter, choice and
    bind. never: pods that fit no node even once all others have ended. forbidden: pods that once
    had room on a node but were refused by quota alone. used: the most that was counted of each
    quota, in percent of one GPU, by namespace and model. moved: bytes of each move. by_moves: pods
    that moves made room for.
    """

    waited: list[float] = field(default_factory=list)
    placed: dict[str, tuple[str, ...]] = field(default_factory=dict)
    allocated: list[float] = field(default_factory=list)
    fragmented: list[float] = field(default_factory=list)
    took: list[float] = field(default_factory=list)
    never: set[str] = field(default_factory=set)
    forbidden: set[str] = field(default_factory=set)
    used: dict[tuple[str, str], int] = field(default_factory=dict)
    moved: list[int] = field(default_factory=list)
    by_moves: set[str] = field(default_factory=set)


class Replay:
    """limits: the quota of each namespace. progress: called now and then with how many came and
    wait. rebalances: whether pods are moved on a node for one that fits nowhere.
    """

    def __init__(
        self,
        nodes: Sequence[NodeFacts],
        policy: Policy,
        mix: Mix,
        limits: Mapping[str, Limit] = {},
        progress: Callable[[int, int], None] = lambda come, waiting: None,
        *,
        rebalances: bool = False,
    ) -> None:
        self._rebalances = rebalances
        self._policy, self._mix, self._names = policy, mix, [node.name for node in nodes]
        self._progress, self._reported_at, self._come = progress, time.monotonic(), 0
        self._cluster = Cluster(Rules(policy.order))
        self._cluster.quota.limits = limits
        for node in nodes:
            self._cluster.put_node(node)
        self._api = _Api()
        self._binder = Binder(self._cluster, self._api, SETTINGS)
        self._ends: list[tuple[float, str]] = []
        self._waiting: list[tuple[int, float, int, TracePod]] = []
        self.outcome = Outcome()

    def run(self, pods: Sequence[TracePod]) -> Outcome:
        for number, pod in enumerate(pods):
            self._end_until(pod.arrival)
            if not self._try(pod, pod.arrival):
                heapq.heappush(self._waiting, (-pod.priority, pod.arrival, number, pod))
            self._come = number + 1
            self._sample()
            self._report()
        self._end_until(float("inf"))
        return self.outcome

    def _report(self) -> None:
        if time.monotonic() - self._reported_at >= REPORT_EVERY_SECONDS:
            self._reported_at = time.monotonic()
            self._progress(self._come, len(self._waiting))

    def _end_until(self, now: float) -> None:
        while self._ends and self._ends[0][0] <= now:
            at = self._ends[0][0]
            while self._ends and self._ends[0][0] == at:
                self._cluster.end_pod(heapq.heappop(self._ends)[1])
            self._retry(at)
            self._report()

    def _retry(self, now: float) -> None:
        still, failed = [], set()
        while self._waiting:
            entry = heapq.heappop(self._waiting)
            # Skip a pod if an equal request was refused in this round.
            kind = replace(entry[3], name="", arrival=0, duration=None, priority=0)
            if kind in failed or not self._try(entry[3], now):
                failed.add(kind)
                still.append(entry)
        self._waiting = still

    def _try(self, pod: TracePod, now: float) -> bool:
        cluster, facts = self._cluster, pod_of(pod.as_object(), SETTINGS)
        if facts is None or facts.ask is None:
            raise ValueError(pod)  # reading the trace has checked it
        began = time.perf_counter()
        verdict = fit(cluster, facts.ask, self._names)
        node = ""
        if not verdict.fitting and self._only_quota_forbids(facts.ask, verdict):
            self.outcome.forbidden.add(pod.name)
        if not verdict.fitting and self._rebalances:
            verdict = self._after_moves(pod, facts.ask, verdict)
        if verdict.fitting:
            node, ask = self._policy.pick(cluster, facts.ask, verdict.fitting)
            facts = replace(facts, ask=ask)
            cluster.put_pod(facts)
            binding = Binding(facts.namespace, facts.name, facts.uid, node)
            failure = _at_once(self._binder.bind(binding))
            if failure:
                raise RuntimeError(failure)  # nothing changes between filter and bind
        self.outcome.took.append(time.perf_counter() - began)
        if len(verdict.never) == len(self._names):
            self.outcome.never.add(pod.name)
        if not node:
            return False
        # Apply the event that would report the binding.
        bound = decision.parse(self._api.annotations[names.ANNOTATION_DECISION])
        cluster.put_pod(replace(facts, node=node, decision=bound))
        self.outcome.placed[pod.name] = tuple(share.uuid for share in bound.containers["main"])
        self.outcome.waited.append(now - pod.arrival)
        self._count_quota(pod.namespace)
        if pod.duration is not None:
            heapq.heappush(self._ends, (now + pod.duration, facts.uid))
        return True

    def _after_moves(self, pod: TracePod, ask: PodAsk, before: Verdict) -> Verdict:
        """The verdict once pods have been moved; the one before if no moves help."""
        open_to = [name for name, why in before.refused.items() if not why.startswith(EXCEEDED)]
        made = rebalancing.make_room(self._cluster, ask, open_to)
        if made is None:
            return before
        for move in made.moves:
            self.outcome.placed[move.id] = (move.target,)
            self.outcome.moved.append(move.bytes)
        self.outcome.by_moves.add(pod.name)
        return fit(self._cluster, ask, [made.node])

    def _only_quota_forbids(self, ask: PodAsk, verdict: Verdict) -> bool:
        whys = (*verdict.refused.values(), *verdict.never.values())
        if not any(why.startswith(EXCEEDED) for why in whys):
            return False
        quota = self._cluster.quota
        limits, quota.limits = quota.limits, {}
        try:
            return bool(fit(self._cluster, ask, self._names).fitting)
        finally:
            quota.limits = limits

    def _count_quota(self, namespace: str) -> None:
        quota = self._cluster.quota
        for model in quota.limits[namespace].core if namespace in quota.limits else ():
            pair, used = (namespace, model), quota.used(namespace, model)
            self.outcome.used[pair] = max(used, self.outcome.used.get(pair, 0))

    def _sample(self) -> None:
        cluster = self._cluster
        rows = cluster.rows(self._names)
        arrays, free = cluster.arrays, free_of(cluster, rows)
        there = arrays.at(rows, "there")
        held = (100 - arrays.at(rows, "core"))[there].sum() / 100
        self.outcome.allocated.append(float(held))
        self.outcome.fragmented.append(float(self._mix.lost(cluster, rows, free).sum()))


class _Api:
    """A fake API server that accepts every binding and keeps the annotations of the last one."""

    def __init__(self) -> None:
        self.annotations: dict[str, str] = {}

    async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
        self.annotations = body["metadata"]["annotations"]
        return 201, {}


def _at_once(bound: Coroutine[Any, Any, str]) -> str:
    """Run the coroutine to its end without an event loop; `_Api` never waits."""
    try:
        bound.send(None)
    except StopIteration as end:
        return str(end.value)
    raise RuntimeError("the binding waits for something")
