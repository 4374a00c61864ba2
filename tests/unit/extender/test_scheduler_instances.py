"""Pods that get a GPU instance each: which GPUs the extender finds room on, and what it counts."""

from __future__ import annotations

import asyncio
import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.gpu.mig_tables import layout, profiles
from support.ledger.samples import GIB
from support.scheduler import clusters
from support.scheduler.clusters import SETTINGS, Binds, container, facts, gpus_of, node
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Layout
from vcuda_oci.placement import mig
from vcuda_oci.placement.eligible import Refused
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import fit
from vcuda_plugin.extender.filter.score import scores
from vcuda_plugin.extender.model.place import Placed
from vcuda_plugin.extender.model.pod_request import PodAsk
from vcuda_plugin.kube import node_gpus

DIVIDED = "GPU-n-1"


def cluster() -> Cluster:
    """A node with a GPU of 16 GiB, and an H100 in MIG mode."""
    gpus = gpus_of("n", 16)
    gpus.gpus.append(Gpu(DIVIDED, 1, -1, 80 * GIB, "H100", divided=True))
    gpus.profiles[DIVIDED] = profiles()
    assert node_gpus.parse(gpus.dump()).gpus[1].divided
    return clusters.cluster(node("n", gpus))


def put(cluster: Cluster, name: str, isolation: str, core: int, memory: int = 0) -> str:
    """Bind one more pod; its GPU, or why not."""
    asks = container(core=core, memory=memory) if memory else container(core=core)
    words = {"vcuda.io/isolation": isolation} if isolation else {}
    pod = clusters.pod(name, asks, annotations=words, uid=name)
    ask = facts(pod).ask
    assert ask
    cluster.put_pod(facts(pod))
    fits = fit(cluster, ask, ["n"]).fitting
    why = asyncio.run(
        Binder(cluster, Binds(), SETTINGS).bind(Binding("default", name, name, "n"))  # type: ignore[arg-type]
    )
    assert bool(fits) == (why == "")
    return why or cluster.nodes["n"].holds[name][0].uuid


def test_instances_are_on_gpus_in_mig_mode_alone_and_count_as_whole_profiles() -> None:
    made = cluster()
    assert put(made, "turns", "turns", 50) == "GPU-n-0"
    assert [put(made, f"p{at}", "mig", 10) for at in range(7)] == [DIVIDED] * 7
    assert "node n: " in put(made, "eighth", "mig", 10)
    for at in range(3):
        made.end_pod(f"p{at}")
    # 3 slices of 7 are free, and no 4 memory slices together.
    assert "no room for 3g.40gb" in put(made, "large", "mig", 42)
    assert put(made, "fits", "mig", 28) == DIVIDED


def test_auto_takes_an_instance_only_where_no_share_fits() -> None:
    made = cluster()
    assert put(made, "first", "auto", 60) == "GPU-n-0"
    assert put(made, "second", "", 60) == DIVIDED
    assert "node n: " in put(made, "turns", "turns", 60)


def test_memory_decides_the_profile_where_it_needs_more() -> None:
    made = cluster()
    assert put(made, "a", "mig", 10, 39 * 4) == DIVIDED  # 39 GiB: 3g.40gb
    (share,) = made.nodes["n"].holds["a"]
    assert (share.core_percent, share.memory_bytes >> 30) == (42, 39)


SMALL = 19  # id of 1g.10gb


def with_instances(**nodes: list[list[tuple[int, int]]]) -> Cluster:
    """By node's name the instances of each of its H100s, as profile and start."""
    made = []
    for name, of_gpus in nodes.items():
        gpus = [
            Gpu(f"GPU-{name}-{at}", at, -1, 80 * GIB, "H100", divided=True)
            for at in range(len(of_gpus))
        ]
        uuids = [gpu.uuid for gpu in gpus]
        reported = node_gpus.NodeGpus(gpus, profiles=dict.fromkeys(uuids, profiles()))
        reported.instances.update(
            (uuid, layout(uuid, "H100", *taken).taken) for uuid, taken in zip(uuids, of_gpus)
        )
        made.append(node(name, reported))
    return clusters.cluster(*made)


def ask_for(core: int) -> PodAsk:
    words = {"vcuda.io/isolation": "mig"}
    found = facts(clusters.pod("p", container(core=core), annotations=words)).ask
    assert found
    return found


def test_pod_goes_where_its_profile_has_a_place_and_not_only_enough_slices() -> None:
    apart, together = [(SMALL, 0), (SMALL, 4)], [(SMALL, 0), (SMALL, 1)]
    made = with_instances(a=[apart], b=[together], c=[apart, together])
    assert fit(made, ask_for(42), ["a", "b", "c"]).fitting == ["b", "c"]
    found = made.find(made.nodes["c"], ask_for(42))
    assert isinstance(found, Placed)
    assert [share.uuid for share in found.holds] == ["GPU-c-1"]


def test_pod_goes_to_the_node_where_the_largest_profiles_keep_their_room() -> None:
    made = with_instances(empty=[[]], half=[[(SMALL, 4)]], full=[[(SMALL, at) for at in range(7)]])
    names = ["empty", "half", "full"]
    empty, half, full = scores(made, ask_for(10), names)
    assert (empty, full) == (0, 0)
    assert half >= 3
    found = made.find(with_instances(n=[[], [(SMALL, 4)]]).nodes["n"], ask_for(10))
    assert isinstance(found, Placed)
    assert [share.uuid for share in found.holds] == ["GPU-n-1"]


def test_gpus_with_the_same_instances_cost_one_search(monkeypatch: pytest.MonkeyPatch) -> None:
    """kube-scheduler's calls for all pods wait meanwhile."""
    names, real = [f"n{at}" for at in range(30)], mig.best_on
    made = with_instances(**{name: [[(SMALL, 0)]] * 8 for name in names})
    searched = list[Layout]()

    def counted(layout: Layout, *asked: int) -> Any:
        searched.append(layout)
        return real(layout, *asked)

    monkeypatch.setattr(mig, "best_on", counted)
    ask = ask_for(11)  # of no other test: what is found is remembered
    assert fit(made, ask, names).fitting == names
    assert len(set(scores(made, ask, names))) == 1
    assert len(searched) == 1


def test_place_of_a_pod_counts_before_and_after_its_node_reports_it() -> None:
    before, after = with_instances(n=[[]]), with_instances(n=[[(9, 4)]])  # 3g.40gb
    for made in (before, after):
        assert put(made, "a", "mig", 42) == "GPU-n-0"
        assert "no room for 7g" in put(made, "whole", "mig", 100)
        assert put(made, "b", "mig", 42) == "GPU-n-0"
        assert "no room for" in put(made, "c", "mig", 10)
        whole = made.find(made.nodes["n"], ask_for(100), {"a", "b"})
        assert isinstance(whole, Placed)


@settings(max_examples=60)
@given(st.lists(st.sampled_from([10, 20, 40, 50, 100]), max_size=8))
def test_extender_admits_what_the_node_can_place_and_nothing_else(cores: list[int]) -> None:
    made, now = cluster(), Layout(DIVIDED, 80 * GIB, profiles(), [])
    for at, core in enumerate(cores):
        found = mig.choose([now], core, 0)
        admitted = put(made, f"p{at}", "mig", core) == DIVIDED
        assert admitted != isinstance(found, Refused)
        if isinstance(found, Refused):
            made.end_pod(f"p{at}")
            continue
        taken = (found.profile.id, found.start, found.profile.width)
        now = now.replaced(taken=(*now.taken, taken))


def published(**changed: Any) -> str:
    """The annotation of a node with 16 GiB and an H100 in MIG mode. changed: fields of that."""
    gpus = gpus_of("n", 16)
    gpus.gpus.append(Gpu(DIVIDED, 1, -1, 80 * GIB, "H100", divided=True))
    gpus.profiles[DIVIDED], gpus.instances[DIVIDED] = profiles(), [(SMALL, 0, 1)]
    tree = json.loads(gpus.dump())
    tree["gpus"][1].update(changed)
    return json.dumps(tree)


@pytest.mark.parametrize(
    "changed",
    [
        {"profiles": [[1, GIB]]},
        {"profiles": [[SMALL, "1g", 1, GIB, [0], 1 << 40, 7]]},
        {"profiles": [[SMALL, "1g", 1, GIB, [-1], 1, 7]]},
        {"profiles": [[SMALL, "1g", 0, GIB, [0], 1, 7]]},
        {"instances": [[SMALL, 0, 1 << 40]]},
        {"instances": [[SMALL, 1 << 40, 1]]},
        {"instances": [[SMALL, -1, 1]]},
        {"instances": [[SMALL, 0]]},
    ],
)
def test_places_that_no_gpu_has_are_refused(changed: dict[str, Any]) -> None:
    assert node_gpus.parse(published()).instances == {DIVIDED: [(SMALL, 0, 1)]}
    with pytest.raises(ValueError, match="not"):
        node_gpus.parse(published(**changed))
