"""The request that the extender reads from a pod, whatever its author wrote."""

from __future__ import annotations

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.scheduler.clusters import SETTINGS, ask, container, pod
from vcuda_hook.claims.quantity import whole
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Part
from vcuda_plugin.extender.cluster.objects import node_of, pod_of
from vcuda_plugin.extender.model.pod_request import ContainerAsk, PodAsk, Wanted, ask_of

MIB, BLOCK = 1 << 20, 1 << 28


@pytest.mark.parametrize(
    ("resources", "parts"),
    [
        ({"core": 30, "memory": 20}, [Part(30, 20 * BLOCK)]),
        ({"core": 30}, [Part(30)]),
        ({"core": 150, "memory": "1k"}, [Part(150, 1000 * BLOCK)]),
        ({"gpu": 2}, [Part(200)]),
        ({"gpu": 1, "gpumem": "10k"}, [Part(1, 10_000 * MIB)]),
        ({"gpu": 2, "gpumem": 3000, "gpucores": 30}, [Part(30, 3000 * MIB)] * 2),
        ({"gpu": 1, "percent": 50, "gpucores": 30}, [Part(30, None, 50)]),
        ({"gpu": 1, "gpucores": 30}, [Part(30, None, 100)]),
        ({"gpu": 1, "gpucores": 100, "gpumem": 10}, [Part(100)]),
        ({"gpu": 1, "percent": 100}, [Part(100)]),
    ],
)
def test_each_family_of_resources_is_understood(resources: Any, parts: list[Part]) -> None:
    assert [each.parts for each in ask(container(**resources)).containers] == [tuple(parts)]


def test_a_pod_that_asks_for_no_gpu_is_none_of_ours() -> None:
    assert ask_of(pod("p", {"name": "c"}, container(core=0)), SETTINGS) is None
    assert pod_of(pod("p", {"name": "c"}), SETTINGS) is None


def test_containers_are_ordered_by_when_they_run() -> None:
    sidecar = {**container("side", core=10), "restartPolicy": "Always"}
    found = ask(
        container("a"), container("b", core=20), inits=(container("first", core=50), sidecar)
    )
    assert found.containers == (
        ContainerAsk("first", -1, "init", (Part(50),)),
        ContainerAsk("side", -1, "sidecar", (Part(10),)),
        ContainerAsk("b", 1, "app", (Part(20),)),
    )
    assert found.core == 30


def test_what_the_annotations_say_of_gpus_orders_and_policies() -> None:
    annotations = {
        "vcuda.io/use-gpu-uuid": "GPU-a, GPU-b",
        "nvidia.com/use-gpuuuid": "GPU-c",
        "nvidia.com/nouse-gpuuuid": "GPU-b",
        "vcuda.io/use-gpu-model": "NVIDIA H100",
        "nvidia.com/nouse-gputype": "A10,T4",
        "hami.io/node-scheduler-policy": "spread",
        "hami.io/gpu-scheduler-policy": "topology-aware",
        "tencent.com/vcuda-core-limit": "60",
        "vcuda.io/priority": "5",
        "vcuda.io/latency": "low",
        "vcuda.io/idle-suspend": "10m",
        "vcuda.io/isolation": "turns",
    }
    found = ask(container(core=30), annotations=annotations)
    assert found == PodAsk(
        (ContainerAsk("main", 0, "app", (Part(30),)),),
        Wanted(
            frozenset({"GPU-a", "GPU-b", "GPU-c"}),
            frozenset({"GPU-b"}),
            ("nvidia-h100",),
            ("a10", "t4"),
        ),
        "topology",
        "spread",
        isolation="turns",
    )
    assert dict(found.words) == {
        "core-limit": "60",
        "priority": "5",
        "latency": "low",
        "idle-suspend": "10m",
        "isolation": "turns",
    }


def test_a_part_that_reserves_no_compute_may_have_what_others_leave() -> None:
    assert dict(ask(container(gpu=1, gpumem=100)).words) == {"policy": "elastic"}


@pytest.mark.parametrize(
    ("resources", "annotations", "line"),
    [
        (
            {"core": "0.5"},
            {},
            "pod default/asking, container main: tencent.com/vcuda-core cannot be '0.5'; "
            "write a whole number",
        ),
        ({"core": "-3"}, {}, "tencent.com/vcuda-core cannot be '-3'"),
        ({"core": "9" * 50}, {}, "tencent.com/vcuda-core cannot be '9999"),
        ({"memory": 4}, {}, "tencent.com/vcuda-memory without tencent.com/vcuda-core"),
        ({"core": 30, "gpu": 1}, {}, "whole GPUs and shares of GPUs at once"),
        ({"gpumem": 3000}, {}, "a part of a GPU without nvidia.com/gpu"),
        ({"gpu": 1, "gpucores": 101}, {}, "more than 100 % of a GPU"),
        ({"core": 6401}, {}, "more than 64 GPUs"),
        ({"gpu": "1E"}, {}, "more than 64 GPUs"),
        ({"core": 30, "memory": "4E"}, {}, "more memory than any GPU has"),
        ({"core": 30}, {"vcuda.io/placement": "left"}, "placement 'left' is not offered"),
        ({"core": 30}, {"vcuda.io/policy": "mine"}, "policy 'mine' is not offered"),
        ({"core": 30}, {"tencent.com/vcuda-core-limit": "20"}, "core-limit cannot be '20'"),
        ({"core": 30}, {"vcuda.io/latency": "10ms"}, "latency cannot be '10ms'"),
    ],
)
def test_nonsense_is_refused_in_one_line(resources: Any, annotations: Any, line: str) -> None:
    with pytest.raises(VcudaError) as refused:
        ask(container(**resources), annotations=annotations)
    assert line in str(refused.value)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize(
    ("text", "number"),
    [
        ("30", 30),
        ("10k", 10_000),
        ("1Ki", 1024),
        ("1.5k", 1500),
        ("2e3", 2000),
        (7, 7),
        ("3000m", 3),
        ("0", 0),
        ("0.5", None),
        ("1m", None),
        ("", None),
        ("-1", None),
        ("\u0661", None),
        (None, None),
        (True, None),
        (-1, None),
        ("1e99", None),
        ("1 k", None),
    ],
)
def test_amounts_are_read_as_kubernetes_writes_them(text: object, number: int | None) -> None:
    assert whole(text) == number


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text("ab1-", max_size=5),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(
            st.sampled_from(
                [
                    "metadata", "annotations", "spec", "containers", "initContainers", "status",
                    "resources", "limits", "tencent.com/vcuda-core", "name", "capacity",
                    "allocatable", "vcuda.io/node-gpus", "tencent.com/vcuda-memory", "labels",
                ]
            ),
            inner,
            max_size=4,
        )
    ),
    max_leaves=30,
)  # fmt: skip


@given(st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), ANY))
def test_no_object_is_too_strange_to_be_read(strange: dict[str, Any]) -> None:
    pod_of(strange, SETTINGS)
    node_of(strange)
