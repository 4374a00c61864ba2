"""Nodes of which the agent is away have no GPU to give."""

from __future__ import annotations

from typing import Any

import pytest

from support.scheduler.clusters import gpus_of, node
from vcuda_oci.placement.rules import Rules
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.cluster.objects import node_of
from vcuda_plugin.extender.follow.agents import NOT_READY, OLD, Agents
from vcuda_plugin.kube.agent_lease import LEASE_SECONDS


class Followed:
    """Nodes a and b with a GPU each, and a clock."""

    def __init__(self) -> None:
        self.time = 1000.0
        self.cluster = Cluster(Rules())
        self.agents = Agents(self.cluster, "vcuda", lambda: self.time)
        for name in ("a", "b"):
            self.agents.put_node(node_of(node(name, gpus_of(name, 16))))

    def away(self) -> dict[str, str]:
        found = self.cluster.nodes.items()
        return {name: entry.facts.why for name, entry in found if not entry.facts.usable}

    def renew(self, name: str, version: int) -> None:
        self.agents.put_lease({"metadata": {"name": name, "resourceVersion": str(version)}})

    def age(self, seconds: float) -> None:
        self.time += seconds
        self.agents.check()


@pytest.fixture
def followed() -> Followed:
    return Followed()


@pytest.fixture
def both(followed: Followed) -> Followed:
    """With a pod of the agent on each node."""
    for name in ("a", "b"):
        followed.agents.put_pod(pod("agent-" + name, name, True))
    return followed


def pod(uid: str, node: str, ready: bool, **metadata: Any) -> dict[str, Any]:
    about = {"uid": uid, "namespace": "vcuda", "name": uid}
    labels = {"app.kubernetes.io/name": "vcuda-node-agent"}
    return {
        "metadata": {**about, "labels": labels, **metadata},
        "spec": {"nodeName": node},
        "status": {"containerStatuses": [{"name": "agent", "ready": ready}]},
    }


def test_node_is_away_while_none_of_its_agents_pods_is_ready(followed: Followed) -> None:
    assert followed.agents.put_pod(pod("one", "a", False))
    assert followed.away() == {"a": NOT_READY}
    followed.agents.put_pod(pod("two", "a", True))  # the next agent of a rollout
    assert followed.away() == {}
    followed.agents.drop_pod("one")
    assert followed.away() == {}
    followed.agents.put_pod(pod("two", "a", False))
    assert followed.away() == {"a": NOT_READY}
    followed.agents.keep_pods(set())  # the agent is a service of the host from now on
    assert followed.away() == {}


def test_what_is_known_of_the_node_comes_back_with_its_agent(followed: Followed) -> None:
    followed.agents.put_pod(pod("one", "a", False))
    followed.agents.put_node(node_of(node("a", gpus_of("a", 16, 16))))
    assert followed.away() == {"a": NOT_READY}
    followed.agents.put_pod(pod("one", "a", True))
    assert len(followed.cluster.nodes["a"].facts.usable) == 2


def test_agents_pod_is_ready_as_its_kubelet_says(followed: Followed) -> None:
    unheard = pod("one", "a", True)
    unheard["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    followed.agents.put_pod(unheard)
    assert followed.away() == {}
    followed.agents.put_pod({**unheard, "status": {}})  # the kubelet has not started it
    assert followed.away() == {"a": NOT_READY}


@pytest.mark.parametrize(
    "other",
    [
        {"namespace": "default"},
        {"labels": {"app.kubernetes.io/name": "other"}},
        {"labels": None},
    ],
)
def test_a_pod_that_is_no_agents_says_nothing(followed: Followed, other: dict[str, Any]) -> None:
    assert not followed.agents.put_pod(pod("one", "a", False, **other))
    assert followed.away() == {}


def test_without_a_namespace_no_agent_is_judged(followed: Followed) -> None:
    agents = Agents(followed.cluster, "")
    assert not agents.put_pod(pod("one", "a", False, namespace=""))


def test_node_is_away_once_its_lease_was_not_renewed_for_its_duration(both: Followed) -> None:
    both.renew("a", 1)
    both.age(LEASE_SECONDS)
    assert both.away() == {}
    both.renew("b", 1)
    both.age(1)
    assert both.away() == {"a": OLD}
    both.renew("a", 1)  # a list brings the same again
    assert both.away() == {"a": OLD}
    both.renew("a", 2)
    assert both.away() == {}
    both.age(LEASE_SECONDS + 1)
    assert both.away() == {"a": OLD, "b": OLD}
    both.agents.keep_leases({"b"}, 0.0)
    assert both.away() == {"b": OLD}


def test_lease_of_a_former_pod_says_nothing_of_a_service(both: Followed) -> None:
    both.renew("a", 1)
    both.age(LEASE_SECONDS + 1)
    assert both.away() == {"a": OLD}
    both.agents.drop_pod("agent-a")
    assert both.away() == {}
    both.agents.put_pod(pod("next", "a", True))
    assert both.away() == {"a": OLD}


def test_an_api_server_that_was_away_makes_no_lease_old(both: Followed) -> None:
    both.renew("a", 1)
    both.age(LEASE_SECONDS - 1)
    both.agents.missed()
    both.age(LEASE_SECONDS)
    assert both.away() == {}
    both.age(1)
    assert both.away() == {"a": OLD}


def test_removed_nodes_stay_removed(followed: Followed) -> None:
    followed.renew("a", 1)
    followed.agents.drop_node("a")
    followed.agents.keep_nodes({"b"}, 0.0)
    followed.age(LEASE_SECONDS + 1)
    assert list(followed.cluster.nodes) == ["b"]
