"""The extender's state of the cluster, after any events in any order."""

from __future__ import annotations

import asyncio
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, container, facts, gpus_of, node
from support.wrapper.counted_steps import steps
from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import UNKNOWN_SECONDS, Cluster
from vcuda_plugin.extender.cluster.objects import node_of
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import fit
from vcuda_plugin.extender.model.place import Placed
from vcuda_plugin.kube.api import ApiError


def free(cluster: Cluster, name: str = "n") -> list[int]:
    """Percent of compute that is free of each of the node's GPUs."""
    entry = cluster.nodes[name]
    row: list[int] = cluster.arrays.at([entry.row], "core")[0].tolist()  # type: ignore[arg-type]
    return row[: len(entry.facts.usable)]


def bound(name: str, core: int, gpu: str = "", **changes: Any) -> dict[str, Any]:
    shares = {"main": [GpuShare(gpu, 1, core)]} if gpu else None
    return clusters.pod(name, container(core=core), node="n", shares=shares, **changes)


NODE = node("n", gpus_of("n", 16, 16))
ASSUMED = facts(clusters.pod("u", container(core=40), uid="u"))
PODS = [
    bound("a", 30, "GPU-n-0"),
    bound("b", 30, "GPU-n-1"),
    bound("c", 20, "GPU-n-1"),
    clusters.pod("pending", container(core=90)),
]


@given(st.permutations([NODE, *PODS, bound("a", 30, "GPU-n-1")]))
def test_the_order_in_which_nodes_and_pods_arrive_makes_no_difference(order: Any) -> None:
    # A pod's share at its binding stays, whatever its annotations become.
    first = next(each for each in order if each["metadata"].get("uid") == "uid-a")
    at_first = "GPU-n-0" in first["metadata"]["annotations"][names.ANNOTATION_DECISION]
    assert free(clusters.cluster(*order)) == ([70, 50] if at_first else [100, 20])


def test_ended_or_deleted_pod_frees_its_gpu_for_good() -> None:
    cluster = clusters.cluster(NODE, *PODS)
    cluster.put_pod(facts(bound("b", 30, "GPU-n-1", phase="Succeeded")))
    cluster.end_pod("uid-a")
    assert free(cluster) == [100, 80]
    cluster.put_pod(facts(PODS[0]))
    assert not cluster.assume(facts(PODS[0]), "n", Placed(), 0)
    assert free(cluster) == [100, 80]


def test_node_restored_with_other_gpus_has_its_pods() -> None:
    cluster = clusters.cluster(NODE, *PODS)
    cluster.drop_node("n")
    assert cluster.nodes == {}
    cluster.put_node(node_of(node("n", gpus_of("n", 16, 16, 16))))
    assert free(cluster) == [70, 50, 100]
    cluster.put_node(node_of(node("n", gpus_of("n", 16, 16, unhealthy={"GPU-n-0": "lost"}))))
    assert free(cluster) == [50]


def test_a_decision_by_index_holds_when_the_agent_publishes_uuids() -> None:
    counted = {
        "metadata": {"name": "n"},
        "status": {"capacity": {clusters.CORE: "200", clusters.MEMORY: "128"}},
    }
    cluster = clusters.cluster(counted, bound("a", 30, "1"))
    assert free(cluster) == [100, 70]
    cluster.put_node(node_of(NODE))
    assert free(cluster) == [100, 70]


def test_what_is_allocatable_is_left_to_kube_scheduler() -> None:
    """Its watch may be ahead of ours, and it asks about no node where nothing is allocatable."""
    cluster = clusters.cluster(NODE, *PODS)
    before = free(cluster)
    status = {"capacity": {clusters.CORE: "200"}, "allocatable": {clusters.CORE: "0"}}
    cluster.put_node(node_of({**NODE, "status": status}))
    assert cluster.nodes["n"].facts.why == ""
    assert free(cluster) == before


def test_unrelated_node_annotations_change_nothing() -> None:
    cluster = clusters.cluster(NODE, *PODS)
    before = cluster.nodes["n"].facts
    cluster.put_node(node_of({**NODE, "status": {"conditions": [{"type": "Ready"}]}}))
    assert cluster.nodes["n"].facts is before


def test_a_bound_pod_without_a_decision_is_counted_where_the_node_would_put_it() -> None:
    cluster = clusters.cluster(NODE, *PODS, bound("static", 60))
    assert free(cluster) == [10, 50]
    cluster.put_pod(facts(bound("too-large", 90)))
    assert free(cluster) == [10, 50]


def test_a_forged_decision_takes_no_more_and_no_less_than_the_pod_asks_for() -> None:
    less = bound("less", 60)
    less["metadata"]["annotations"][names.ANNOTATION_DECISION] = (
        '{"containers":{"main":[{"uuid":"GPU-n-1","core_percent":1,"memory_bytes":1}]}}'
    )
    strange = bound("strange", 30)
    strange["metadata"]["annotations"][names.ANNOTATION_DECISION] = '{"containers":[]}'
    elsewhere = bound("elsewhere", 10, "GPU-other")
    assert free(clusters.cluster(NODE, less)) == [40, 100]
    assert free(clusters.cluster(NODE, strange)) == [70, 100]
    assert free(clusters.cluster(NODE, elsewhere)) == [100, 100]


def test_decision_that_names_another_node_counts_no_more_than_on_the_node() -> None:
    forged = bound("forged", 60, "GPU-n-1")
    forged["metadata"]["annotations"]["tencent.com/predicate-node"] = "other"
    assert free(clusters.cluster(NODE, forged)) == [40, 100]
    forged["metadata"]["annotations"]["tencent.com/predicate-node"] = "n"
    assert free(clusters.cluster(NODE, forged)) == [100, 40]


def test_a_binding_with_an_unknown_outcome_counts_for_a_while() -> None:
    cluster = clusters.cluster(NODE)
    placed = Placed(holds=[GpuShare("GPU-n-0", GIB, 40)])
    cluster.assume(ASSUMED, "n", placed, 1000)
    cluster.expire(1000 + UNKNOWN_SECONDS - 1)
    assert free(cluster) == [60, 100]
    cluster.expire(1000 + UNKNOWN_SECONDS)
    assert (free(cluster), cluster.assumed) == ([100, 100], {})


def test_a_known_binding_counts_until_a_list_begun_later_lacks_it() -> None:
    cluster = clusters.cluster(NODE)
    cluster.assume(ASSUMED, "n", Placed(holds=[GpuShare("GPU-n-0", GIB, 40)]), 1000)
    cluster.confirm("u", "n", 1001)
    cluster.expire(1e9)
    cluster.keep_pods({"u"}, 1000.5)  # begun before the pod was bound: the list shows it unbound
    assert free(cluster) == [60, 100]
    cluster.keep_pods(set(), 1002)
    assert free(cluster) == [100, 100]


class Server:
    """A fake API server: answers bindings as set, and stores the bound pods."""

    def __init__(self, answers: list[str]) -> None:
        self.answers, self.bound = answers, list[Any]()

    async def call(self, method: str, path: str, body: Any = None, *_: Any) -> tuple[int, Any]:
        answer = self.answers.pop() if self.answers else "bound"
        await asyncio.sleep(0)
        if answer == "refused":
            return 403, {"message": "no"}
        if answer == "lost before":
            raise ApiError(0, "lost")
        self.bound.append(body)
        await asyncio.sleep(0)
        if answer == "lost after":
            raise ApiError(0, "lost")
        return 201, {}


@settings(max_examples=40)
@given(
    st.lists(st.sampled_from([10, 30, 60, 100, 150]), min_size=1, max_size=12),
    st.lists(st.sampled_from(["bound", "refused", "lost before", "lost after"]), max_size=12),
)
def test_bindings_at_once_over_commit_no_gpu_whatever_the_server_answers(
    cores: list[int], answers: list[str]
) -> None:
    cluster, server = clusters.cluster(NODE), Server(list(answers))
    binder = Binder(cluster, server, SETTINGS)
    for number, core in enumerate(cores):
        cluster.put_pod(facts(clusters.pod(f"p{number}", container(core=core))))

    async def bind() -> list[str]:
        asked = [Binding("default", f"p{n}", f"uid-p{n}", "n") for n in range(len(cores))]
        return await asyncio.gather(*map(binder.bind, asked))

    assert len(asyncio.run(bind())) == len(cores)
    written = [each["metadata"]["annotations"][names.ANNOTATION_DECISION] for each in server.bound]
    taken: dict[str, int] = {}
    for each in server.bound:
        core = cores[int(each["metadata"]["name"][1:])]
        bound_pod = clusters.pod(each["metadata"]["name"], container(core=core), node="n")
        bound_pod["metadata"]["annotations"] = each["metadata"]["annotations"]
        # The event arrives, and equals what was counted.
        cluster.put_pod(facts(bound_pod))
        for share in cluster.nodes["n"].holds[bound_pod["metadata"]["uid"]]:
            taken[share.uuid] = taken.get(share.uuid, 0) + share.core_percent
    assert all(core <= 100 for core in taken.values()), written
    cluster.expire(1e12)
    assert free(cluster) == [100 - taken.get(f"GPU-n-{index}", 0) for index in range(2)]
    assert cluster.assumed == {}


def test_a_filter_takes_no_more_steps_in_a_large_cluster() -> None:
    ask = facts(clusters.pod("asking", container(core=30))).ask
    assert ask

    def steps_of_a_filter(nodes: int) -> int:
        there = [f"n{number}" for number in range(nodes)]
        cluster = clusters.cluster(*(node(name, gpus_of(name, 16, 16)) for name in there))
        verdicts = []
        taken = steps(lambda: verdicts.append(fit(cluster, ask, there[:10])))
        assert [len(verdict.fitting) for verdict in verdicts] == [10]
        return taken

    assert steps_of_a_filter(20) == steps_of_a_filter(400)
