"""ResourceClaimTemplates from the names that an admission policy gives them."""

from __future__ import annotations

from typing import Any

import pytest

from support.ledger.samples import GIB
from support.scheduler.clusters import SETTINGS
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import settings_file
from vcuda_oci.system.settings_file import Config
from vcuda_plugin.extender.claims.template import template

OPAQUE = {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig"}
DISTINCT = [{"distinctAttribute": "gpu.vcuda.io/uuid"}]


def devices(name: str, *sizes: int, settings: Config = SETTINGS) -> Any:
    tree = template(name, settings, lambda: sizes)
    assert (tree["kind"], tree["metadata"]) == ("ResourceClaimTemplate", {"name": name})
    return tree["spec"]["spec"]["devices"]


def share(cores: int, memory: str, count: int = 1) -> Any:
    requests = {"cores": str(cores), "memory": memory}
    return {"deviceClassName": "gpu.vcuda.io", "count": count, "capacity": {"requests": requests}}


def whole(count: int) -> Any:
    return {"deviceClassName": "whole.gpu.vcuda.io", "count": count}


@pytest.mark.parametrize(
    ("name", "wanted"),
    [
        ("core-30.memory-20", [share(30, "5120Mi")]),
        ("core-100", [whole(1)]),
        ("core-200.memory-9", [whole(2)]),
        ("core-150.memory-4", [whole(1), share(50, "1024Mi")]),
        ("gpu-1", [whole(1)]),
        ("gpu-2.mem-3000.cores-30", [share(30, "3000Mi", 2)]),
        ("gpu-1.cores-100.mem-3000", [whole(1)]),
    ],
)
def test_amounts_become_the_requests_of_one_claim(name: str, wanted: list[Any]) -> None:
    found = devices(f"vcuda.{name}")
    assert [each["exactly"] for each in found["requests"]] == wanted
    assert [each["name"] for each in found["requests"]] == [
        f"gpu-{at}" for at in range(len(wanted))
    ]
    count = sum(each["count"] for each in wanted)
    assert found.get("constraints") == (DISTINCT if count > 1 else None)


@pytest.mark.parametrize("name", ["core-25", "gpu-1.percent-25.cores-25"])
def test_memory_in_percent_is_that_of_each_size_of_gpu(name: str) -> None:
    (request,) = devices(f"vcuda.{name}", 16 * GIB, 80 * GIB)["requests"]
    first, second = request["firstAvailable"]
    cel = 'device.capacity["gpu.vcuda.io"].memory.compareTo(quantity("{}")) == 0'
    for at, (each, size, memory) in enumerate(
        [(first, 80 * GIB, "20480Mi"), (second, 16 * GIB, "4096Mi")]
    ):
        selectors = [{"cel": {"expression": cel.format(size)}}]
        assert each == {"name": f"size-{at}", **share(25, memory), "selectors": selectors}


def test_overcommitted_memory_is_no_part_of_the_percentage() -> None:
    twice = settings_file.parse('memory-overcommit = "2"', "config.toml")
    (request,) = devices("vcuda.core-25", 32 * GIB, settings=twice)["requests"]
    (only,) = request["firstAvailable"]
    assert only["capacity"]["requests"]["memory"] == "4096Mi"


@pytest.mark.parametrize(
    ("terms", "parameters"),
    [
        ("policy-elastic.core-limit-80", {"policy": "elastic", "coreLimit": 80}),
        ("core-limit-80", {"coreLimit": 80}),
        ("policy-weighted.weight-300", {"policy": "weighted", "weight": 300}),
        ("policy-elastic.priority-2", {"policy": "elastic", "priority": 2}),
        ("policy-best-effort.latency-low", {"policy": "best-effort", "latency": "low"}),
        ("idle-suspend-10m", {"idleSuspend": "10m"}),
    ],
)  # fmt: skip
def test_annotations_become_the_claims_parameters(terms: str, parameters: Any) -> None:
    (config,) = devices(f"vcuda.core-30.memory-4.{terms}")["config"]
    driver = {"driver": "gpu.vcuda.io", "parameters": {**OPAQUE, **parameters}}
    assert config == {"opaque": driver}


def test_gpu_without_compute_is_elastic_as_for_the_plugin() -> None:
    found = devices("vcuda.gpu-1.mem-3000")
    assert [each["exactly"] for each in found["requests"]] == [share(1, "3000Mi")]
    (config,) = found["config"]
    assert config["opaque"]["parameters"] == {**OPAQUE, "policy": "elastic"}


@pytest.mark.parametrize(
    ("name", "why"),
    [
        ("vcuda.core-0", "asks for no part of a GPU"),
        ("vcuda.memory-4", "vcuda-memory without tencent.com/vcuda-core"),
        ("vcuda.core-30.gpu-1", "whole GPUs and shares of GPUs at once"),
        ("vcuda.core-30.policy-greedy", "policy 'greedy' is not offered"),
        ("vcuda.core-99999999999999999999", "cannot be '99999999999999999999'"),
        ("vcuda.core-6500", "more than 64 GPUs"),
        ("vcuda.core-200.isolation-mig", "a container has one GPU instance; it asks for more"),
        ("vcuda.gpu-2.isolation-mig", "a container has one GPU instance; it asks for more"),
        ("vcuda.size-3", "'size-3' is no amount"),
        ("vcuda.", "'' is no amount"),
        ("vcuda.core", "'core' is no amount"),
    ],
)
def test_names_that_mean_nothing_are_refused_with_the_reason(name: str, why: str) -> None:
    with pytest.raises(VcudaError) as raised:
        devices(name)
    assert why in str(raised.value)


def test_percentage_of_too_many_sizes_is_refused() -> None:
    with pytest.raises(VcudaError) as raised:
        devices("vcuda.core-30", *(GIB * number for number in range(1, 10)))
    assert "memory in percent of GPUs of 9 sizes" in str(raised.value)


def test_resources_that_are_not_offered_have_no_word() -> None:
    with pytest.raises(VcudaError) as raised:
        devices("vcuda.gpu-1", settings=settings_file.parse("", "config.toml"))
    assert "'gpu-1' is no amount" in str(raised.value)


def test_an_amount_that_is_said_twice_is_refused() -> None:
    with pytest.raises(VcudaError, match="said twice"):
        template("vcuda.core-30.memory-20.policy-elastic.core-90", SETTINGS, lambda: [16 * GIB])


@pytest.mark.parametrize(
    ("name", "kind", "requests"),
    [
        ("core-30.memory-20", "mps", {"cores": "30", "memory": "5120Mi"}),
        ("core-100", "mps", None),
        ("core-30.memory-20", "mig", {"cores": "30", "memory": "5120Mi"}),
        ("core-15", "mig", {"cores": "15"}),
        ("core-100", "mig", {"cores": "100"}),
    ],
)
def test_isolation_chooses_the_class_and_stands_in_the_parameters(
    name: str, kind: str, requests: Any
) -> None:
    found = devices(f"vcuda.{name}.isolation-{kind}")
    (request,) = found["requests"]
    assert request["exactly"]["deviceClassName"] == f"{kind}.gpu.vcuda.io"
    assert request["exactly"].get("capacity", {}).get("requests") == requests
    (config,) = found["config"]
    assert config["opaque"]["parameters"] == {**OPAQUE, "isolation": kind}
