"""Several extenders exceed no quota and give no GPU twice, with pauses of any length."""

from __future__ import annotations

import contextlib
import copy
import math
from collections.abc import Coroutine, Generator
from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import precondition, rule

from support.api_server.fake_api_calls import FakeApiCalls
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, facts
from unit.extender_service.test_scheduler_quota_races import NODES, Promises
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.bind.leader import LEASE_SECONDS, Leader
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.follow.async_api import Withheld
from vcuda_plugin.extender.quota.quota_limits import Limit
from vcuda_plugin.kube.api import CALL_SECONDS

which = st.integers(0, 1)
names = st.sampled_from(["p1", "p2", "p5", "p6"])
nodes = st.sampled_from("ab")


class LeaderRaces(Promises):
    """Two extenders, one clock; each is told what happens late, or not at all. The quota has room
    for one pod."""

    limits = {"team": Limit({"M40": 100}, ())}

    def __init__(self) -> None:
        super().__init__()
        self.api, self.now = FakeApiCalls(), 1000.0
        self.extenders = [Extender(self, name) for name in ("one", "two")]
        self.take_over(0, True)

    def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """Of the Lease."""
        return self.api.lease(method, path, body)

    @rule(number=which, seconds=st.sampled_from([0, 1, 5, 11]))
    def renew(self, number: int, seconds: float) -> None:
        self.now += seconds
        self.extenders[number].leader.try_step()

    @rule(number=which)
    def settle(self, number: int) -> None:
        self.extenders[number].leader.try_settle()

    @rule(number=which, settles=st.booleans())
    def take_over(self, number: int, settles: bool) -> None:
        """No other replica has renewed it for so long."""
        for seconds in (0, LEASE_SECONDS + 1):
            self.renew(number, seconds)
        if settles:
            self.settle(number)

    @rule(number=which, name=names, node=nodes)
    def begin_to_bind(self, number: int, name: str, node: str) -> None:
        extender = self.extenders[number]
        extender.go_on(extender.binder.bind(Binding("team", name, "uid-" + name, node)))

    @rule(number=which, name=names, node=nodes)
    def bind(self, number: int, name: str, node: str) -> None:
        waiting = self.extenders[number].waiting
        before = len(waiting)
        self.begin_to_bind(number, name, node)
        while len(waiting) > before:
            self.extenders[number].go_on(waiting.pop())

    @rule(
        number=which,
        names=st.permutations(["p1", "p5"]),
        nodes=st.tuples(nodes, nodes),
        ends=st.booleans(),
        settles=st.booleans(),
        returns=st.booleans(),
    )
    def binds_and_then_the_other_does(
        self,
        number: int,
        names: list[str],
        nodes: tuple[str, str],
        ends: bool,
        settles: bool,
        returns: bool,
    ) -> None:
        """ends: its binding does before the other takes over. returns: it takes over again."""
        (self.bind if ends else self.begin_to_bind)(number, names[0], nodes[0])
        self.take_over(1 - number, settles)
        self.bind(1 - number, names[1], nodes[1])
        if returns:
            self.take_over(number, True)

    @precondition(lambda self: any(each.waiting for each in self.extenders))
    @rule(number=which, binding=st.integers(0, 11), stops=st.integers(1, 3))
    def go_on(self, number: int, binding: int, stops: int) -> None:
        extender = self.extenders[number]
        if extender.waiting:
            extender.waiting.append(extender.waiting.pop(binding % len(extender.waiting)))
            before = len(extender.waiting)
            while stops and len(extender.waiting) == before:
                extender.go_on(extender.waiting.pop())
                stops -= 1

    @rule(number=which, name=names)
    def tell(self, number: int, name: str) -> None:
        self.extenders[number].tell(name)


class Extender:
    """waiting: its bindings that are delayed."""

    def __init__(self, races: LeaderRaces, name: str) -> None:
        self._races = races
        self.cluster = clusters.cluster(*NODES)
        self.cluster.quota.limits = races.limits
        self.leader = Leader(races, "a/b", self.catch_up, name, lambda: races.now)  # type: ignore[arg-type]
        self.binder = Binder(self.cluster, self, SETTINGS, self.leader.why_not)
        self.waiting: list[Coroutine[None, None, str]] = []

    def catch_up(self) -> None:
        for name in self._races.server:
            self.tell(name)
        self.cluster.expire(math.inf)

    def tell(self, name: str) -> None:
        self.cluster.put_pod(facts(copy.deepcopy(self._races.server[name])))

    def go_on(self, binding: Coroutine[None, None, str]) -> None:
        with contextlib.suppress(StopIteration):
            binding.send(None)
            self.waiting.append(binding)

    async def call(
        self, method: str, path: str, body: Any = None, why_not: Any = None
    ) -> tuple[int, Any]:
        """As `AsyncApi` and the API server do it; each `Stop` may last."""
        name = path.split("/")[6]
        if method == "GET":
            return 200, self._races.server[name]
        await Stop()
        began = self._races.now
        await Stop()
        if why_not and (why := why_not()):
            raise Withheld(why)
        await Stop()
        pod = self._races.server[name]
        if self._races.now - began > CALL_SECONDS:
            return 504, {}
        if pod["spec"].get("nodeName"):
            return 409, {}
        pod["spec"]["nodeName"] = body["target"]["name"]
        pod["metadata"]["annotations"] = body["metadata"]["annotations"]
        return 201, {}


class Stop:
    """Until the test goes on."""

    def __await__(self) -> Generator[None, None, None]:
        yield


TestLeaderRaces = LeaderRaces.TestCase
TestLeaderRaces.settings = settings(max_examples=400, stateful_step_count=20)
