"""The pods to evict so that a pod fits: the fewest, of the lowest priority."""

from __future__ import annotations

import json
from itertools import combinations
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.scheduler import clusters
from support.scheduler.clusters import container, gpus_of
from unit.extender_service.test_scheduler_quota import limited
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.placement.choose import Refused
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import preemption, preemption_result
from vcuda_plugin.extender.filter.preempt import Victims, preempt

NODE = clusters.node("n", gpus_of("n", 16, 16, 16))


def held(name: str, gpu: int, core: int, priority: int, **more: Any) -> dict[str, Any]:
    shares = {"main": [GpuShare(f"GPU-n-{gpu}", 1, core)]}
    asks = container(core=core)
    return clusters.pod(name, asks, node="n", shares=shares, priority=priority, uid=name, **more)


def chosen(cluster: Cluster, core: int, *uids: str, violations: int = 0, **more: Any) -> Any:
    ask = clusters.ask(container(core=core), **more)
    found = preempt(cluster, ask, 100, {"n": Victims(uids, violations)})
    return found.get("n")


def test_one_gpu_is_freed_and_not_parts_of_three() -> None:
    pods = [
        held("a", 0, 30, 5),
        held("b", 0, 30, 5),
        held("c", 0, 30, 5),
        held("d", 1, 60, 5),
        held("e", 1, 30, 6),
        held("f", 2, 60, 5),
        held("g", 2, 40, 5),
    ]
    cluster = clusters.cluster(NODE, *pods)
    assert chosen(cluster, 100, "a", "d", "f") == Victims(("f", "g"))
    assert chosen(cluster, 100, "a", "d", "f", violations=3) == Victims(("f", "g"), 1)
    # Two GPUs: only with the one of a higher priority would it be fewer.
    assert chosen(cluster, 200, "a") == Victims(("a", "b", "c", "f", "g"))
    assert chosen(cluster, 300, "a") == Victims(("e", "a", "b", "c", "d", "f", "g"))
    # Of equals the scheduler's own.
    assert chosen(cluster, 50, "d") == Victims(("d",))
    assert chosen(cluster, 50, "f") == Victims(("f",))


def test_a_pod_of_equal_priority_is_not_evicted_and_the_node_is_left_out() -> None:
    cluster = clusters.cluster(NODE, *[held(f"p{gpu}", gpu, 100, 100) for gpu in range(3)])
    assert chosen(cluster, 30, "p0") is None
    assert preempt(cluster, clusters.ask(container(core=1)), 200, {"z": Victims(("p0",))}) == {}


def test_victims_for_something_else_than_gpus_stay_victims() -> None:
    cluster = clusters.cluster(NODE, *[held(f"p{gpu}", gpu, 100, 1) for gpu in range(2)])
    assert chosen(cluster, 100, "cpu", violations=1) == Victims(("cpu",), 1)
    assert chosen(cluster, 200, "cpu", "p1", violations=2) == Victims(("cpu", "p1"), 2)
    assert chosen(cluster, 100) is None  # the scheduler takes no node without victims


def test_where_a_quota_is_used_up_its_own_namespace_makes_room() -> None:
    name: dict[str, Any] = {"node": "a", "priority": 1}
    others = clusters.pod("o", container(core=100), uid="o", namespace="others", **name)
    own = clusters.pod("t", container(core=200), uid="t", namespace="team", **name)
    cluster = limited({"team": {"quota": {"M40": 2}}}, others, own)
    ask = clusters.ask(container(core=100), namespace="team")
    given_victims = {"a": Victims(("o",)), "b": Victims(("x",))}
    assert preempt(cluster, ask, 9, given_victims) == {"a": Victims(("t",))}


@settings(max_examples=60)
@given(
    st.lists(
        st.tuples(st.integers(0, 2), st.sampled_from([30, 50, 70]), st.integers(1, 3)), max_size=7
    ),
    st.sampled_from([20, 60, 100, 200]),
)
def test_no_other_choice_is_lower_or_for_one_share_smaller(pods: Any, core: int) -> None:
    taken, trees, priority = [0, 0, 0], [], {}
    for number, (gpu, share, important) in enumerate(pods):
        if taken[gpu] + share <= 100:
            taken[gpu] += share
            trees.append(held(f"p{number}", gpu, share, important))
            priority[f"p{number}"] = important
    cluster = clusters.cluster(NODE, *trees)
    entry, ask = cluster.nodes["n"], clusters.ask(container(core=core))

    def fits(uids: Any) -> bool:
        return not isinstance(cluster.find(entry, ask, uids), Refused)

    sets = [set(each) for size in range(len(trees) + 1) for each in combinations(priority, size)]
    fitting = [each for each in sets if fits(each)]
    found = chosen(cluster, core, "cpu")
    if fits(()):
        assert found == Victims(("cpu",))
        return
    uids = set(found.uids) - {"cpu"}
    assert fits(uids) and not any(fits(uids - {uid}) for uid in uids)
    lowest = min(max(priority[uid] for uid in each) for each in fitting)
    assert max(priority[uid] for uid in uids) == lowest
    if core <= 100:
        low = [each for each in fitting if max(priority[uid] for uid in each) == lowest]
        assert len(uids) == min(map(len, low))


def test_scheduler_messages_are_read_and_written_as_by_go() -> None:
    pod = {"metadata": {"name": "p"}}
    meta = {"a": {"Pods": [{"UID": "x"}, {"UID": "y"}], "NumPDBViolations": 1}, "b": None}
    whole = {"a": {"Pods": [{"metadata": {"uid": "x"}}, {"metadata": {"uid": "y"}}]}}
    whole["a"]["NumPDBViolations"] = 1  # type: ignore[assignment]
    found = {"a": Victims(("x", "y"), 1)}
    for said in (
        {"Pod": pod, "NodeNameToVictims": None, "NodeNameToMetaVictims": meta},
        {"Pod": pod, "NodeNameToVictims": whole, "NodeNameToMetaVictims": None},
    ):
        assert preemption(json.dumps(said).encode()) == (pod, found)
    assert json.loads(preemption_result(found)) == {"NodeNameToMetaVictims": {"a": meta["a"]}}
