"""What an allocated claim gives, and which claims and parameters are refused."""

from __future__ import annotations

import json
from typing import Any

import jsonschema
import pytest
from hypothesis import given
from hypothesis import strategies as st

from support.files import ROOT
from support.kubelet.dra_claims import NODE, claim, parameters, result
from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import Terms
from vcuda_plugin.agent.dra.claim_request import ClaimRequest, Result, of_claim

GPUS = gpus(16, 16)
WHOLE = result("GPU-0", 100, "16Gi")
SCHEMA = f"{ROOT}/docs/share-config.schema.json"


def read(tree: dict[str, Any], uid: str = "u1") -> ClaimRequest:
    return of_claim(tree, uid, NODE, GPUS)


def test_a_claim_gives_the_amounts_that_the_scheduler_consumed() -> None:
    found = read(claim("u1", result("GPU-1")))
    assert found.shares == [GpuShare("GPU-1", 4 * GIB, 30)]
    assert found.results == [Result("gpu", NODE, "gpu-1", "5a3c")]
    assert found.request.as_json() == {
        "core": 30, "memory_bytes": 4 * GIB, "gpus": [], "policy": "fixed", "placement": "",
    }  # fmt: skip
    assert (found.pod_uid, found.pod_name) == ("uid-u1", "pod-u1")


def test_a_device_without_amounts_is_a_whole_gpu() -> None:
    alone = {**result("GPU-0", None, None), "consumedCapacity": None}
    assert read(claim("u1", alone)).shares == [GpuShare("GPU-0", 16 * GIB, 100)]


def test_two_requests_give_one_and_a_half_gpus() -> None:
    whole = result("GPU-0", 100, "16Gi", request="whole/big")
    found = read(claim("u1", whole, result("GPU-1", "50", "8Gi", request="half")))
    assert [share.core_percent for share in found.shares] == [100, 50]
    assert [each.request for each in found.results] == ["whole", "half"]


def test_devices_of_other_drivers_are_left_to_them() -> None:
    other = {**result("GPU-0"), "driver": "nic.example.org", "device": "nic-0"}
    assert [each.device for each in read(claim("u1", other, result("GPU-1"))).results] == ["gpu-1"]


def test_a_claim_of_several_pods_names_none_of_them() -> None:
    pods = [{"resource": "pods", "name": name, "uid": name} for name in "ab"]
    found = read(claim("u1", result("GPU-0"), reservedFor=pods))
    assert (found.pod_uid, found.pod_name) == ("", "")


def test_the_claims_parameters_override_those_of_its_class() -> None:
    of_class = {**parameters(policy="weighted", weight=7), "source": "FromClass"}
    mine = parameters("gpu", policy="elastic", coreLimit=80, priority=5, latency="low")
    other = parameters("other", policy="best-effort")
    found = read(claim("u1", result("GPU-0"), config=[of_class, mine, other]))
    assert found.request.terms == Terms("elastic", 80, priority=5, latency="low")
    found = read(claim("u1", result("GPU-0"), config=[of_class, other]))
    assert found.request.terms == Terms("weighted", weight=7)


def test_policy_for_all_requests_fits_beside_a_whole_gpu() -> None:
    config = [parameters(policy="elastic", coreLimit=80)]
    found = read(claim("u1", WHOLE, result("GPU-1", request="half"), config=config))
    assert found.request.terms == Terms("elastic", 80)


@pytest.mark.parametrize(
    ("tree", "error"),
    [
        (claim("u2", result("GPU-0")), "has the uid u2, not u1"),
        (claim("u1"), "no device of gpu.vcuda.io is allocated to it"),
        ({**claim("u1"), "status": {}}, "no device of gpu.vcuda.io is allocated to it"),
        (claim("u1", result("GPU-0", pool="node-2")), "is allocated in the pool node-2"),
        (claim("u1", result("GPU-0", adminAccess=True)), "asks for admin access"),
        (claim("u1", result("GPU-7")), "device 'gpu-7' is not here"),
        (claim("u1", result("GPU-0", "0")), "its amounts are invalid"),
        (claim("u1", result("GPU-0", "101")), "its amounts are invalid"),
        (claim("u1", result("GPU-0", "30", "-1")), "its amounts are invalid"),
        (claim("u1", result("GPU-0"), result("GPU-0")), "two of its devices are on one GPU"),
        (claim("u1", WHOLE, config=[parameters(isolation="mps")]), "isolation mps: its device"),
        (claim("u1", WHOLE, config=[parameters(isolation="mig")]), "isolation mig: its device"),
        (claim("u1", WHOLE, config=[parameters(policy="greedy")]), "policy 'greedy' is not"),
        (
            claim(
                "u1",
                result("GPU-0"),
                result("GPU-1", request="b"),
                config=[parameters("b", policy="elastic")],
            ),
            "its requests have different policies",
        ),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_a_claim_that_does_not_fit_is_refused(tree: dict[str, Any], error: str) -> None:
    with pytest.raises(VcudaError, match=error):
        read(tree)


WRONG: list[Any] = [
    None,
    [],
    {"apiVersion": "vcuda.io/v1", "kind": "ShareConfig"},
    {"apiVersion": "vcuda.io/v1alpha1", "kind": "Other"},
    *(
        {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig", **fields}
        for fields in (
            {"policy": "greedy"},
            {"policy": 5},
            {"policy": "weighted", "weight": "7"},
            {"policy": "weighted", "weight": True},
            {"policy": "weighted", "weight": 0},
            {"policy": "weighted", "weight": 10_001},
            {"policy": "elastic", "coreLimit": 101},
            {"policy": "elastic", "priority": -1},
            {"policy": "elastic", "priority": 1001},
            {"weight": 7},
            {"policy": "fixed", "priority": 1},
            {"core-limit": 80},
            {"latency": "high"},
            {"latency": 1},
        )
    ),
]
RIGHT = [
    {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig", **fields}
    for fields in (
        {},
        {"policy": "fixed"},
        {"policy": "best-effort"},
        {"latency": "low"},
        {"policy": "best-effort", "latency": "normal"},
        {"policy": "elastic", "coreLimit": 30, "priority": 1000},
        {"coreLimit": 60, "priority": 5},
        {"policy": "weighted", "weight": 10_000, "priority": 0},
    )
]


def schema() -> Any:
    with open(SCHEMA) as file:
        return json.load(file)


def is_taken(tree: Any) -> bool:
    config = {"opaque": {"driver": "gpu.vcuda.io", "parameters": tree}}
    try:
        read(claim("u1", result("GPU-0", 1), config=[config]))
    except VcudaError:
        return False
    return True


@pytest.mark.parametrize("tree", WRONG, ids=str)
def test_wrong_parameters_are_refused_as_the_schema_says(tree: Any) -> None:
    assert not jsonschema.Draft7Validator(schema()).is_valid(tree)
    assert not is_taken(tree)


@pytest.mark.parametrize("tree", RIGHT, ids=str)
def test_right_parameters_are_taken_as_the_schema_says(tree: Any) -> None:
    jsonschema.validate(tree, schema())
    assert is_taken(tree)


VALUES = st.one_of(
    st.none(), st.booleans(), st.integers(-5, 10_005), st.floats(), st.text(max_size=3),
    st.sampled_from(["fixed", "elastic", "weighted", "best-effort", "normal", "low"]),
    st.lists(st.integers()),
)  # fmt: skip
KEYS = st.sampled_from(["policy", "coreLimit", "weight", "priority", "latency", "other"])


@given(st.dictionaries(KEYS, VALUES, max_size=4))
def test_schema_and_driver_take_the_same_parameters(fields: dict[str, Any]) -> None:
    tree = {"apiVersion": "vcuda.io/v1alpha1", "kind": "ShareConfig", **fields}
    if any(isinstance(value, float) and value == value // 1 for value in fields.values()):
        return  # JSON Schema takes 5.0 as an integer; the driver is stricter
    assert is_taken(tree) == jsonschema.Draft7Validator(schema()).is_valid(tree)
