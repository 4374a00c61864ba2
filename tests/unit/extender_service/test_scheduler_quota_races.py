"""No quota is passed and no GPU promised twice, whatever happens in which order: filter, bindings
that overlap, event, end, expiry, crash."""

from __future__ import annotations

import contextlib
import copy
from collections.abc import Coroutine, Generator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, container, facts
from unit.extender_service.test_scheduler_quota import labelled
from vcuda_oci.ledger import decision
from vcuda_oci.model.names import ANNOTATION_DECISION
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import fit
from vcuda_plugin.extender.quota.quota_limits import Limit
from vcuda_plugin.kube.api import ApiError

LIMITS = {"team": Limit({"M40": 200, "P100": 100}, ("public",))}
NODES = [
    labelled("a", "M40", "public", 2),
    labelled("b", "M40", "public", 2),
    labelled("c", "P100", "public", 2),
    labelled("d", "M40", "private", 2),
]
MODEL = {each["metadata"]["name"]: each["metadata"]["labels"] for each in NODES}
ANSWERS = ("bound", "refused", "lost before", "lost after", "told first")
CORES = (30, 60, 100, 120)
names = st.integers(0, 11).map(lambda n: f"p{n}")
nodes = st.sampled_from("abcd")


class Promises(RuleBasedStateMachine):
    """`server`: the pods as the API server has them. limits: those of every extender."""

    limits = LIMITS

    def __init__(self) -> None:
        super().__init__()
        cores = [CORES[n % len(CORES)] for n in range(12)]
        self.server = {
            f"p{n}": clusters.pod(f"p{n}", container(core=core), namespace="team")
            for n, core in enumerate(cores)
        }

    def bound(self) -> dict[str, int]:
        used = {"M40": 0, "P100": 0}
        for pod in self.server.values():
            if node := pod["spec"].get("nodeName"):
                core = pod["spec"]["containers"][0]["resources"]["limits"][clusters.CORE]
                used[MODEL[node]["gaia.tencent.com/gpu-model"]] += int(core)
        return used

    @invariant()
    def no_quota_is_passed(self) -> None:
        used = self.bound()
        assert all(used[model] <= most for model, most in self.limits["team"].core.items()), used
        assert not any(pod["spec"].get("nodeName") == "d" for pod in self.server.values())

    @invariant()
    def no_gpu_is_promised_twice(self) -> None:
        promised: dict[str, int] = {}
        for pod in self.server.values():
            if pod["spec"].get("nodeName"):
                text = pod["metadata"]["annotations"][ANNOTATION_DECISION]
                for share in decision.parse(text).containers["main"]:
                    promised[share.uuid] = promised.get(share.uuid, 0) + share.core_percent
        assert all(core <= 100 for core in promised.values()), promised


class QuotaRaces(Promises):
    """The API server's events arrive late and in any order."""

    def __init__(self) -> None:
        super().__init__()
        self.waiting: list[Coroutine[str, str, str]] = []
        self.start()

    def start(self) -> None:
        """As an extender that was just started: everything is listed."""
        self.cluster: Cluster = clusters.cluster(*NODES, *self.server.values())
        self.cluster.quota.limits = LIMITS
        self.binder = Binder(self.cluster, self, SETTINGS)

    async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
        answer = await Answer() if method == "POST" else ""
        pod = self.server.get(path.split("/")[6])
        if pod is None:
            return 404, {}
        if method == "GET":
            return 200, pod
        if answer == "lost before":
            raise ApiError(0, "lost")
        if answer == "refused" or pod["spec"].get("nodeName"):
            return 409, {}
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"]["annotations"] = body["metadata"]["annotations"]
        if answer == "lost after":
            raise ApiError(0, "lost")
        if answer == "told first":
            self.tell(pod["metadata"]["name"])
        return 201, {}

    @rule(name=names, node=nodes)
    def begin_to_bind(self, name: str, node: str) -> None:
        binding = self.binder.bind(Binding("team", name, "uid-" + name, node))
        with contextlib.suppress(StopIteration):
            binding.send(None)
            self.waiting.append(binding)

    @precondition(lambda self: self.waiting)
    @rule(which=st.integers(0, 11), answer=st.sampled_from(ANSWERS))
    def answer_a_binding(self, which: int, answer: str) -> None:
        with contextlib.suppress(StopIteration):
            self.waiting.pop(which % len(self.waiting)).send(answer)
            raise AssertionError("it waits for more")

    @rule(name=names, node=nodes, answer=st.sampled_from(ANSWERS))
    def bind(self, name: str, node: str, answer: str) -> None:
        before = len(self.waiting)
        self.begin_to_bind(name, node)
        if len(self.waiting) > before:
            self.answer_a_binding(before, answer)

    def answer_all(self, answer: str) -> None:
        while self.waiting:
            self.answer_a_binding(0, answer)

    @rule(name=names)
    def filter(self, name: str) -> None:
        if name in self.server:
            ask = facts(self.server[name]).ask
            assert ask
            before = self.cluster.quota.report()
            assert fit(self.cluster, ask, "abcd") == fit(self.cluster, ask, "abcd")
            assert self.cluster.quota.report() == before

    @rule(name=names)
    def tell(self, name: str) -> None:
        if name in self.server:
            self.cluster.put_pod(facts(copy.deepcopy(self.server[name])))
        else:
            self.cluster.end_pod("uid-" + name)

    @rule(name=names)
    def delete(self, name: str) -> None:
        self.server.pop(name, None)

    @rule(answer=st.sampled_from(ANSWERS))
    def expire(self, answer: str) -> None:
        """Let two minutes pass; every answer and every event has arrived."""
        self.answer_all(answer)
        for name in [f"p{n}" for n in range(12)]:
            self.tell(name)
        self.cluster.expire(1e12)
        self.counted_is_bound()

    @rule(name=nodes)
    def node_goes_and_comes(self, name: str) -> None:
        self.cluster.drop_node(name)
        self.cluster.put_node(clusters.node_of(next(n for n in NODES if node_name(n) == name)))

    @rule(answer=st.sampled_from(("lost before", "lost after")))
    def crash(self, answer: str) -> None:
        self.answer_all(answer)
        self.start()
        self.counted_is_bound()

    def counted_is_bound(self) -> None:
        for model, used in self.bound().items():
            assert self.cluster.quota.used("team", model) == used


class Answer:
    """An answer of the API server, given when the test sets it."""

    def __await__(self) -> Generator[str, str, str]:
        return (yield "")


def node_name(tree: dict[str, Any]) -> str:
    return str(tree["metadata"]["name"])


TestQuotaRaces = QuotaRaces.TestCase
TestQuotaRaces.settings = settings(max_examples=30, stateful_step_count=40)
