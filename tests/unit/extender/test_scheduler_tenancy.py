"""Labels that decide which pods may share a GPU."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, Binds, container, facts, gpus_of, node
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.choose import Refused
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import fit

NODE = node("n", gpus_of("n", 16, 16, 16))
OTHER = node("m", gpus_of("m", 16))


def labels(prefix: str = "sharedgpu/", **words: str) -> dict[str, str]:
    """slice=…, affinity=…, anti=…, exclusion=…"""
    long = {"slice": "GPUID", "anti": "sched_anti-affinity"}
    return {prefix + long.get(word, f"sched_{word}"): label for word, label in words.items()}


def put(cluster: Cluster, name: str, core: int = 10, node: str = "n", **more: Any) -> str:
    """Bind one more pod; the index of its GPU, or why not."""
    namespace = more.pop("namespace", "default")
    isolation = more.pop("isolation", "")
    words = labels(**more) | ({"vcuda.io/isolation": isolation} if isolation else {})
    asks = container(core=core)
    pod = clusters.pod(name, asks, annotations=words, uid=name, namespace=namespace)
    cluster.put_pod(facts(pod))
    ask = facts(pod).ask
    assert ask
    fits = fit(cluster, ask, [node]).fitting
    binder = Binder(cluster, Binds(), SETTINGS)  # type: ignore[arg-type]
    why = asyncio.run(binder.bind(Binding(namespace, name, name, node)))
    assert bool(fits) == (why == "")
    return why or cluster.nodes[node].holds[name][0].uuid[-1]


def test_pods_of_one_slice_are_on_one_gpu_of_the_cluster() -> None:
    cluster = clusters.cluster(NODE, OTHER)
    assert put(cluster, "big", 80) == "0"
    assert put(cluster, "a", 30, slice="s") == "1"
    assert put(cluster, "b", 30, slice="s") == "1"
    assert put(cluster, "c", 10, slice="t") == "0"
    assert "labels exclude GPU-" in put(cluster, "d", node="m", slice="s")
    assert "labels exclude GPU-" in put(cluster, "e", 60, slice="s")
    for uid in "ab":
        cluster.end_pod(uid)
    assert put(cluster, "f", node="m", slice="s") == "0"


def test_affinity_goes_to_its_own_or_to_an_empty_gpu() -> None:
    cluster = clusters.cluster(NODE)
    assert put(cluster, "other", 50) == "0"
    assert put(cluster, "a", affinity="red") == "1"
    assert put(cluster, "b", affinity="red") == "1"
    assert put(cluster, "c", affinity="blue") == "2"
    assert "labels exclude GPU-n-0, GPU-n-1, GPU-n-2" in put(cluster, "d", affinity="green")
    # A pod without labels may share its GPU.
    assert put(cluster, "e", 75) == "1"


def test_anti_affinity_separates_equal_labels() -> None:
    cluster = clusters.cluster(NODE)
    assert [put(cluster, name, anti="x") for name in "abc"] == ["0", "1", "2"]
    assert "labels exclude GPU-" in put(cluster, "d", anti="x")
    assert put(cluster, "e", anti="y") in "012"


def test_exclusion_shares_a_gpu_with_its_own_label_only() -> None:
    cluster = clusters.cluster(NODE)
    assert put(cluster, "a", exclusion="mine") == "0"
    assert put(cluster, "b", exclusion="mine") == "0"
    assert put(cluster, "c") == "1"
    assert put(cluster, "d", exclusion="yours", prefix="kubeshare/") == "2"
    assert put(cluster, "e") == "1"
    assert put(cluster, "f", 90).startswith("node n: ")
    # The same label in another namespace is different.
    assert "labels exclude GPU-" in put(cluster, "g", namespace="spy", exclusion="mine")
    cluster.end_pod("d")
    assert put(cluster, "h", 90) == "2"


_STEP = st.tuples(st.sampled_from(["mps", "turns", ""]), st.sampled_from([20, 50, 100]))


@settings(max_examples=60)
@given(st.lists(st.one_of(_STEP, st.integers(0, 9)), max_size=14))
def test_mps_and_turns_never_share_a_gpu_whatever_comes_and_ends(steps: Any) -> None:
    part = Gpu("MIG-0", 1, -1, 16 * GIB, "Soft", parent="GPU-n-1", mig=[0, 1, 0])
    gpus = gpus_of("n", 16)
    gpus.gpus.append(part)
    cluster, kinds = clusters.cluster(node("n", gpus)), dict[str, bool]()
    for number, step in enumerate(steps):
        if isinstance(step, int):
            if f"p{step}" in kinds:
                cluster.end_pod(f"p{step}")
            continue
        is_empty = not any(cluster.nodes["n"].holds.values())
        kinds[f"p{number}"] = step[0] == "mps"
        why = put(cluster, f"p{number}", step[1], isolation=step[0])
        assert not is_empty or why == "0"
    on: dict[str, set[bool]] = {}
    for uid, shares in cluster.nodes["n"].holds.items():
        for share in shares:
            on.setdefault(share.uuid, set()).add(kinds[uid])
    assert all(len(each) == 1 for each in on.values())
    assert on.get("MIG-0", {False}) == {False}


def test_refusal_says_that_the_other_isolation_has_the_gpu() -> None:
    cluster = clusters.cluster(OTHER)
    assert put(cluster, "a", node="m", isolation="mps") == "0"
    assert "the other isolation excludes GPU-m-0" in put(cluster, "b", node="m")
    cluster.end_pod("a")
    assert put(cluster, "c", node="m") == "0"
    assert "the other isolation excludes GPU-m-0" in put(cluster, "d", node="m", isolation="mps")


def test_what_mps_cannot_give_has_no_node() -> None:
    words = {"vcuda.io/isolation": "mps", "vcuda.io/policy": "elastic"}
    trouble = facts(clusters.pod("p", container(core=10), annotations=words)).trouble
    assert "isolation mps: a share cannot be elastic; use policy fixed" in trouble


@settings(max_examples=80)
@given(
    st.lists(st.tuples(st.sampled_from(["", "x", "y"]), st.sampled_from([20, 50])), max_size=8),
    st.sampled_from([10, 60, 100, 200]),
)
def test_nodes_without_labels_are_chosen_as_the_arrays_say(pods: Any, core: int) -> None:
    cluster = clusters.cluster(NODE)
    for number, (label, share) in enumerate(pods):
        put(cluster, f"p{number}", share, **({"exclusion": label} if label else {}))
    ask = clusters.ask(container(core=core))
    found = cluster.find(cluster.nodes["n"], ask)
    assert bool(fit(cluster, ask, ["n"]).fitting) == (not isinstance(found, Refused))


@pytest.mark.parametrize("order", [0, 1])
def test_restarted_extender_reads_the_labels(order: int) -> None:
    first = clusters.pod("p", container(core=10), node="n", annotations=labels(exclusion="x"))
    cluster = clusters.cluster(*[[NODE, first], [first, NODE]][order])
    assert put(cluster, "q", exclusion="x") == "0"
    assert put(cluster, "r") == "1"
