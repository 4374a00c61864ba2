"""The admission policy for pods, evaluated: a share needs the RuntimeClass."""

from __future__ import annotations

from typing import Any

import pytest
from cel_expr_python import cel

from contract.chart import rendering

CORE = "tencent.com/vcuda-core"
POLICY = "vcuda-node-agent-pods"
KIND = "ValidatingAdmissionPolicy"


def denied(pod: Any, values: Any = None) -> list[str]:
    """What the policy says against the creation of `pod`; []: it admits the pod."""
    spec = rendering.one(rendering.objects(values or {}), KIND, POLICY)["spec"]
    known = dict.fromkeys(("object", "variables"), cel.Type.DYN)
    environment = cel.NewEnv(variables=known)
    data: dict[str, Any] = {"object": pod, "variables": {}}

    def value(expression: str) -> Any:
        return environment.compile(expression).eval(data=data).plain_value()

    for each in spec["variables"]:
        data["variables"][each["name"]] = value(each["expression"])
    return [
        each["message"] for each in spec["validations"] if value(each["expression"]) is not True
    ]


def pod(resources: Any, runtime_class: str = "", kind: str = "containers") -> Any:
    spec: dict[str, Any] = {"containers": [{"name": "plain"}]}
    asking = {"name": "main", **({"resources": resources} if resources is not None else {})}
    spec[kind] = [*spec.get(kind, []), asking]
    if runtime_class:
        spec["runtimeClassName"] = runtime_class
    return {"spec": spec}


@pytest.mark.parametrize("kind", ["containers", "initContainers"])
@pytest.mark.parametrize("field", ["limits", "requests"])
def test_share_without_the_runtime_class_is_denied_with_the_remedy(kind: str, field: str) -> None:
    (message,) = denied(pod({field: {CORE: "30"}}, kind=kind))
    assert "needs runtimeClassName: vcuda;" in message
    assert denied(pod({field: {CORE: "30"}}, "runc", kind=kind)) == [message]
    assert denied(pod({field: {CORE: "30"}}, "vcuda", kind=kind)) == []


@pytest.mark.parametrize("resources", [None, {}, {"limits": {"cpu": "1"}}, {"requests": {}}])
def test_pod_that_asks_for_no_share_needs_no_runtime_class(resources: Any) -> None:
    assert denied(pod(resources)) == []


def test_configured_resources_and_runtime_classes_are_the_ones_that_count() -> None:
    values = {
        "settings": {"gpu-resource": "example.com/gpu"},
        "runtimeClass": {"name": "shared"},
        "admission": {"runtimeClasses": ["other"]},
    }
    asking = {"limits": {"example.com/gpu": "1"}}
    assert denied(pod(asking, "vcuda"), values)
    for name in ("shared", "other"):
        assert denied(pod(asking, name), values) == []


@pytest.mark.parametrize(
    ("values", "version"),
    [({"admission": {"requireRuntimeClass": False}}, "1.30"), ({}, "1.29")],
    ids=["switched off", "before 1.30"],
)
def test_no_policy_where_it_is_off_or_the_cluster_has_none(values: Any, version: str) -> None:
    found = rendering.objects(values, version)
    named = {(each["kind"], each["metadata"]["name"]) for each in found}
    assert not {name for name in named if name[1] == POLICY}
