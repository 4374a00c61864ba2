"""One of several extenders binds, through stops, pauses and lost answers."""

from __future__ import annotations

import asyncio
import time
from functools import partial
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule

from support.api_server.fake_api_server import FakeApiServer
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, container, gpus_of, node
from vcuda_oci.model.errors import VcudaError
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.bind.leader import HELD_SECONDS, LEASE_SECONDS, Leader
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.kube.api import CALL_SECONDS, ApiError

WHERE = "kube-system/vcuda-scheduler-extender"
PATH = "/apis/coordination.k8s.io/v1/namespaces/kube-system/leases/vcuda-scheduler-extender"


class Group:
    """Extenders over one API server, with `now` as its clock. read: when each last read what is
    bound."""

    def __init__(self, *names: str) -> None:
        self.api, self.now, self.answer, self.unread = FakeApiServer(), 1000.0, "ok", False
        self.read: dict[str, float] = {}
        self.leaders = [self.leader(name) for name in names]

    def leader(self, name: str, where: str = WHERE) -> Leader:
        catch_up = partial(self.catch_up, name)
        return Leader(self, where, catch_up, name, lambda: self.now)  # type: ignore[arg-type]

    def catch_up(self, name: str) -> None:
        if self.unread or self.answer == "away":
            raise ApiError(0, "away")
        self.read[name] = self.now

    def call(self, method: str, path: str, body: Any = None, **query: str) -> tuple[int, Any]:
        if self.answer == "lost before" and method != "GET":
            raise ApiError(0, "lost")
        code, found = self.api.lease(method, path, body)
        if self.answer == "lost after" and method != "GET":
            raise ApiError(0, "lost")
        if self.answer == "away":
            raise ApiError(0, "away")
        return code, found

    def binds(self) -> list[str]:
        return [each.identity for each in self.leaders if not each.why_not()]

    def after(self, seconds: float, *steps: int) -> list[str]:
        """Which may bind when these have made their steps."""
        self.now += seconds
        for number in steps:
            self.leaders[number].try_step()
            self.leaders[number].try_settle()
        return self.binds()


def test_the_first_leads_and_a_standby_takes_over_after_its_end() -> None:
    group = Group("one", "two")
    assert group.after(0, 0, 1) == ["one"]
    held = "standby: the lease vcuda-scheduler-extender is held by one"
    assert group.leaders[1].why_not() == held
    assert group.after(HELD_SECONDS - 0.1, 1) == ["one"]
    assert group.after(0.1, 1) == []
    assert group.after(LEASE_SECONDS - HELD_SECONDS, 1) == []
    assert group.after(0.1, 1) == ["two"]
    # A replica that was suspended does not lead when it resumes.
    assert group.after(0, 0, 1) == ["two"]
    spec = group.api.leases[PATH]["spec"]
    assert (spec["holderIdentity"], spec["leaseTransitions"]) == ("two", 1)
    assert spec["leaseDurationSeconds"] == LEASE_SECONDS


def test_a_lease_that_is_released_is_taken_at_once() -> None:
    group = Group("one", "two")
    assert group.after(0, 0, 1) == ["one"]
    group.leaders[0].release()
    assert group.after(0, 0, 1) == ["two"]


def test_a_new_leader_binds_nothing_before_it_has_read_the_bindings() -> None:
    group = Group("one")
    taken = "standby: the lease vcuda-scheduler-extender was taken just now; try again in a moment"
    group.unread = True
    assert group.after(0, 0) == group.after(60, 0) == []
    assert group.leaders[0].why_not() == taken
    group.unread = False
    assert group.after(0, 0) == ["one"]
    # A leader that retained the lease does not read again, one that regained it does.
    group.after(HELD_SECONDS, 0)
    assert group.read == {"one": 1060.0}
    group.api.leases[PATH]["spec"]["holderIdentity"] = ""
    group.unread = True
    assert group.after(1, 0) == []
    group.unread = False
    assert (group.after(1, 0), group.read) == (["one"], {"one": 1062.0 + HELD_SECONDS})


def test_leader_stays_during_an_api_outage_and_continues_after() -> None:
    group = Group("one", "two")
    group.after(0, 0, 1)
    group.answer = "away"
    assert group.after(HELD_SECONDS, 0, 1) == []
    group.answer = "ok"
    assert group.after(0, 0, 1) == ["one"]


def test_times_of_day_that_jump_change_nothing(monkeypatch: Any) -> None:
    group = Group("one", "two")
    group.after(0, 0, 1)
    for moment in (0.0, 4e9):
        monkeypatch.setattr(time, "time", lambda moment=moment: moment)
        monkeypatch.setattr(time, "gmtime", lambda moment=moment: time.localtime(moment))
        assert group.after(2, 0, 1) == ["one"]


def test_a_replica_without_the_lease_counts_and_binds_nothing() -> None:
    pod = clusters.pod("p", container(core=30))
    cluster = clusters.cluster(node("n", gpus_of("n", 16)), pod)
    group = Group("one", "two")
    group.after(0, 0, 1)
    sent: list[str] = []

    class Server:
        async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
            sent.append(method)
            return 201, {}

    for leader in reversed(group.leaders):
        binder = Binder(cluster, Server(), SETTINGS, leader.why_not)
        assert asyncio.run(binder.bind(Binding("default", "p", "uid-p", "n"))) == leader.why_not()
        assert bool(sent) == bool(cluster.assumed) == (leader is group.leaders[0])


@pytest.mark.parametrize("where", ["x", "/x", "x/", "x/y/z"])
def test_a_lease_needs_a_namespace_and_a_name(where: str) -> None:
    with pytest.raises(
        VcudaError, match=f"--lease {where}: is not the name of a Lease; write NAMESPACE/NAME"
    ):
        Group().leader("one", where)


class Elections(RuleBasedStateMachine):
    """last: when each could last have sent a binding."""

    def __init__(self) -> None:
        super().__init__()
        self.group = Group("0", "1", "2")
        self.last: dict[str, float] = {}

    @rule(
        which=st.integers(0, 2),
        answer=st.sampled_from(["ok", "ok", "lost before", "lost after", "away"]),
        seconds=st.sampled_from([0, 0.5, 2, 9, 21]),
    )
    def step(self, which: int, answer: str, seconds: float) -> None:
        self.group.answer = answer
        self.group.after(seconds, which)

    @rule(which=st.integers(0, 2))
    def restarted(self, which: int) -> None:
        name = self.group.leaders[which].identity + "'"
        self.group.leaders[which] = self.group.leader(name)

    @rule(seconds=st.floats(0, 25))
    def wait(self, seconds: float) -> None:
        """Wait second by second, so that no replica holds the lease unnoticed."""
        while seconds > 0:
            self.group.after(min(1, seconds))
            seconds -= 1
            self.one_binds()

    @invariant()
    def one_binds(self) -> None:
        binds = self.group.binds()
        assert len(binds) <= 1
        for name in binds:
            self.last[name] = self.group.now
            others = [at for other, at in self.last.items() if other != name]
            # The other's requests had ended before the bound pods were read.
            assert all(self.group.read[name] >= at + 2 * CALL_SECONDS for at in others)


TestElections = Elections.TestCase
TestElections.settings = settings(max_examples=60, stateful_step_count=40)
