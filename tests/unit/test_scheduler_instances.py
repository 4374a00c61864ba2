"""Pods that get a GPU instance each: which GPUs the extender finds room on, and what it counts."""

from __future__ import annotations

import asyncio

from hypothesis import given, settings
from hypothesis import strategies as st

from support import clusters
from support.clusters import SETTINGS, Binds, container, facts, gpus_of, node
from support.mig_tables import profiles
from support.samples import GIB
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Layout
from vcuda_oci.placement import mig
from vcuda_oci.placement.eligible import Refused
from vcuda_plugin.extender.bind.bind import Binder
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.filter.extender_api import Binding
from vcuda_plugin.extender.filter.fit import fit
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
    # 3 of 7: a profile of 4 slices has no room, one of 3 has.
    assert "node n: " in put(made, "large", "mig", 50)
    assert put(made, "fits", "mig", 42) == DIVIDED


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


@settings(max_examples=60)
@given(st.lists(st.sampled_from([10, 20, 40, 50, 100]), max_size=8))
def test_what_the_node_can_place_in_this_order_the_extender_admits(cores: list[int]) -> None:
    made, layout = cluster(), Layout(DIVIDED, 80 * GIB, profiles(), [])
    for at, core in enumerate(cores):
        found = mig.choose([layout], core, 0)
        admitted = put(made, f"p{at}", "mig", core) == DIVIDED
        if isinstance(found, Refused):
            made.end_pod(f"p{at}")
            continue
        assert admitted
        taken = (found.profile.id, found.start, found.profile.width)
        layout = layout.replaced(taken=(*layout.taken, taken))
