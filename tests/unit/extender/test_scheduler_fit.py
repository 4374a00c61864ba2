"""The fast check of all nodes equals the slow check of each node, for any cluster."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB
from support.scheduler import clusters
from support.scheduler.clusters import container, gpus_of, node
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.placement.choose import Refused
from vcuda_plugin.extender.filter.fit import MOST_OWN_REASONS, NOT_KNOWN, OTHER_GPU, fit
from vcuda_plugin.extender.model.place import place

MODELS = ["NVIDIA H100 80GB HBM3", "Tesla T4"]
CORES = st.sampled_from([1, 30, 50, 80, 99, 100, 150, 200, 300])
MEMORIES = st.none() | st.sampled_from([1, 16, 32, 40, 64, 70])
CONTAINERS = st.builds(
    lambda core, memory: {"core": core, **({"memory": memory} if memory else {})}, CORES, MEMORIES
) | st.builds(
    lambda gpu, kind, amount: {"gpu": gpu, **({kind: amount} if kind else {})},
    st.integers(1, 3),
    st.sampled_from(["", "gpumem", "percent", "gpucores"]),
    st.integers(1, 100),
)
WANTS = st.sampled_from(
    [
        {},
        {},
        {"nvidia.com/use-gputype": "h100"},
        {"vcuda.io/use-gpu-model": "NVIDIA-H100-80GB-HBM3"},
        {"nvidia.com/nouse-gputype": "T4, A10"},
        {"vcuda.io/use-gpu-uuid": "GPU-n0-0,GPU-n1-1"},
        {"nvidia.com/nouse-gpuuuid": "GPU-n0-0,GPU-n2-0"},
        {"vcuda.io/placement": "spread"},
    ]
)


@st.composite
def situations(draw: Any) -> Any:
    made, names = clusters.cluster(), []
    for number in range(draw(st.integers(1, 3))):
        name = f"n{number}"
        sizes = draw(st.lists(st.sampled_from([4, 8, 16]), max_size=4))
        gpus = gpus_of(name, *sizes, model=draw(st.sampled_from(MODELS)))
        unhealthy = {gpu.uuid: "lost" for gpu in gpus.gpus if draw(st.integers(0, 9)) == 0}
        overcommit = draw(st.sampled_from([1, 1.5]))
        gpus = gpus_of(name, *sizes, model=gpus.gpus[0].model if gpus.gpus else "",
                    unhealthy=unhealthy, overcommit=overcommit)  # fmt: skip
        for at, gpu in enumerate(gpus.gpus):
            if draw(st.integers(0, 3)) == 0:
                gpu.parent, gpu.mig = f"GPU-{name}", [at, 7, 0]
        made.put_node(clusters.node_of(node(name, gpus)))
        for gpu in gpus.gpus:
            for share in range(draw(st.sampled_from([0, 1, 2]))):
                core = draw(st.sampled_from([1, 20, 50]))
                memory = draw(st.sampled_from([1, 8, 24]))
                held = GpuShare(gpu.uuid, memory * GIB // 4, core)
                bound = clusters.pod(
                    f"{gpu.uuid}-{share}",
                    container(core=core, memory=memory),
                    node=name,
                    shares={"main": [held]},
                )
                made.put_pod(clusters.facts(bound))
        names.append(name)
    wants = draw(WANTS)
    asked = [
        container(f"c{number}", **each)
        for number, each in enumerate(draw(st.lists(CONTAINERS, min_size=1, max_size=3)))
    ]
    inits = [
        container(f"i{number}", **each)
        for number, each in enumerate(draw(st.lists(CONTAINERS, max_size=1)))
    ]
    for each in inits:
        if draw(st.booleans()):
            each["restartPolicy"] = "Always"
    return made, names, clusters.ask(*asked, annotations=wants, inits=tuple(inits))


@settings(max_examples=400)
@given(situations())
def test_all_nodes_at_once_get_the_answer_that_each_would(situation: Any) -> None:
    cluster, names, ask = situation
    verdict = fit(cluster, ask, names)
    fitting, refused, never = [], {}, set()
    for name in names:
        entry = cluster.nodes[name]
        wanted = [g for g in entry.facts.usable if ask.wanted.allows(g.uuid, g.model)]
        terms = ask, entry.facts.reported.rules(cluster.rules)
        answer = place(wanted, entry.taken, *terms)
        if not isinstance(answer, Refused):
            fitting.append(name)
        elif isinstance(place(wanted, [], *terms), Refused):
            never.add(name)
        else:
            refused[name] = answer.reason
    assert (verdict.fitting, verdict.refused, set(verdict.never)) == (fitting, refused, never)
    assert fit(cluster, ask, names) == verdict


def reasons(*objects: dict[str, Any], asked: Any) -> tuple[list[str], dict[str, str], Any]:
    cluster = clusters.cluster(*objects)
    verdict = fit(cluster, asked, [*cluster.nodes, "nowhere"])
    return verdict.fitting, verdict.refused, verdict.never


def test_each_refused_node_has_a_reason() -> None:
    unhealthy = gpus_of("ill", 16, unhealthy={"GPU-ill-0": "Xid 79"})
    found = reasons(
        node("roomy", gpus_of("roomy", 16)),
        node("full", gpus_of("full", 16)),
        clusters.pod(
            "p",
            container(core=80),
            node="full",
            shares={"main": [GpuShare("GPU-full-0", 1, 80)]},
        ),
        node("small", gpus_of("small", 2)),
        node("old", gpus_of("old", 16, model="Tesla T4")),
        node("bare", annotations={}),
        node("ill", unhealthy),
        node("cordoned", gpus_of("cordoned", 16), annotations={"vcuda.io/cordoned-gpus": "0"}),
        node("broken", annotations={"vcuda.io/node-gpus": "[]"}),
        asked=clusters.ask(
            container(core=30, memory=16), annotations={"nvidia.com/nouse-gputype": "t4"}
        ),
    )
    broken = "vcuda.io/node-gpus cannot be read: not a list of GPUs: "
    broken += "TypeError('list indices must be integers or slices, not str')"
    free = "largest free share is 20 % and 3.2 GiB on GPU-full-0; 30 % and 4.0 GiB asked"
    assert found == (
        ["roomy"],
        {"full": free, "nowhere": NOT_KNOWN},
        {
            "small": "its GPUs never have 30 % and 4.0 GiB: the largest of 1 has 2.0 GiB",
            "old": OTHER_GPU,
            "bare": "no GPUs that vcuda shares",
            "ill": "every GPU is unhealthy: Xid 79",
            "cordoned": "every GPU is cordoned or unhealthy",
            "broken": broken,
        },
    )


def test_many_refusing_nodes_share_one_reason_and_a_few_name_their_gpu() -> None:
    names = [f"n{number}" for number in range(3 * MOST_OWN_REASONS)]
    nodes = [node(name, gpus_of(name, 16)) for name in names]
    pods = [
        clusters.pod(
            f"p-{name}",
            container(core=80),
            node=name,
            shares={"main": [GpuShare(f"GPU-{name}-0", 1, 80)]},
        )
        for name in names
    ]
    _, refused, _ = reasons(*nodes, *pods, asked=clusters.ask(container(core=30)))
    assert [refused[name].startswith("largest free share") for name in names] == (
        [True] * MOST_OWN_REASONS + [False] * 2 * MOST_OWN_REASONS
    )
    assert {refused[name] for name in names[MOST_OWN_REASONS:]} == {"less is free than 30 %"}


def test_node_without_the_agents_annotation_counts_by_its_capacity() -> None:
    counted = {
        "metadata": {"name": "n", "labels": {"gaia.tencent.com/gpu-model": "T4"}},
        "status": {"capacity": {clusters.CORE: "200", clusters.MEMORY: "120"}},
    }
    for core, memory, wanted, fits in [
        (30, 60, "t4", True),
        (30, 61, "t4", False),
        (200, 1, "t4", True),
        (300, 1, "t4", False),
        (30, 1, "h100", False),
    ]:
        asked = clusters.ask(
            container(core=core, memory=memory), annotations={"vcuda.io/use-gpu-model": wanted}
        )
        assert (reasons(counted, asked=asked)[0] == ["n"]) == fits


def test_a_node_with_more_gpus_than_others_is_answered_for_as_well() -> None:
    big = node("big", gpus_of("big", *[16] * 40))
    assert reasons(big, asked=clusters.ask(container(core=4000)))[0] == ["big"]
    assert list(reasons(big, asked=clusters.ask(container(core=4100)))[2]) == ["big"]


@pytest.mark.parametrize(
    ("asked", "fits"),
    [
        ({"core": 50, "memory": 1}, True),
        ({"core": 51, "memory": 1}, False),
        ({"core": 10, "memory": 32}, True),
        ({"core": 10, "memory": 33}, False),
        ({"core": 100}, True),
        ({"core": 100, "memory": 64}, True),
        ({"core": 100, "memory": 65}, False),
        ({"core": 200, "memory": 1}, False),
    ],
)
def test_a_request_that_just_fits_is_placed_and_one_more_is_not(
    asked: dict[str, Any], fits: bool
) -> None:
    half = [GpuShare("GPU-n-0", 1, 50)]
    whole = [GpuShare("GPU-n-1", 1, 100)]
    # Of three GPUs one is half free and one wholly; a share may not have the latter.
    held = [
        clusters.pod("a", container(core=50, memory=32), node="n", shares={"main": half}),
        clusters.pod("b", container(core=100), node="n", shares={"main": whole}),
    ]
    only = {"vcuda.io/use-gpu-uuid": "GPU-n-0"} if asked["core"] < 100 else {}
    ask = clusters.ask(container(**asked), annotations=only)
    assert (reasons(node("n", gpus_of("n", 16, 16, 16)), *held, asked=ask)[0] == ["n"]) == fits
