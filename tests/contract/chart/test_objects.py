"""The chart's objects are valid in every supported version of Kubernetes and consistent."""

from __future__ import annotations

import base64
import itertools
import re
from collections.abc import Iterator
from typing import Any

import kubernetes_validate
import pytest
import yaml

from contract.chart import rendering
from contract.chart.rendering import (
    AGENT,
    CHART,
    CLAIMS,
    CLUSTER,
    DRA,
    EXTENDER,
    HAMI,
    IN_A_CONTAINER,
    PAGE,
)

# The oldest that the chart is for, the last without the admission policy, the first with it.
VERSIONS = ["1.25", "1.29", "1.30", rendering.NEWEST]
KINDS = [{}, CLUSTER, HAMI, IN_A_CONTAINER, DRA, CLAIMS, PAGE]
NAMES = [
    "as it is",
    "the cluster's scheduler",
    "HAMi's resources",
    "a driver container, IPv6",
    "DRA",
    "DRA for old manifests",
    "the cluster page",
]


def test_helm_finds_nothing_to_say_against_the_chart() -> None:
    done = rendering.helm("lint", "--strict", CHART)
    assert done.returncode == 0, done.stdout
    assert not re.search(r"\[(WARNING|INFO)\]", done.stdout), done.stdout


def test_the_charts_icon_is_the_file_beside_it() -> None:
    with open(CHART + "/Chart.yaml") as file:
        icon = yaml.safe_load(file)["icon"]
    kind, _, content = icon.partition(",")
    with open(CHART + "/icon.svg", "rb") as picture:
        assert (kind, base64.b64decode(content)) == ("data:image/svg+xml;base64", picture.read())


@pytest.mark.parametrize("version", VERSIONS)
def test_kubernetes_knows_every_field_of_every_object(version: str) -> None:
    for each in rendering.objects({}, version):
        kubernetes_validate.validate(each, version, strict=True)


@pytest.mark.parametrize("values", KINDS[1:], ids=NAMES[1:])
def test_other_values_render_what_kubernetes_knows_too(values: dict[str, Any]) -> None:
    for each in rendering.objects(values):
        kubernetes_validate.validate(each, rendering.NEWEST, strict=True)


@pytest.mark.parametrize("values", KINDS, ids=NAMES)
def test_what_an_object_names_is_there(values: dict[str, Any]) -> None:
    found = rendering.objects(values)
    there = {(each["kind"], each["metadata"]["name"]) for each in found}
    there |= {("Secret", "extender-tls"), ("Secret", "page-tls")}
    assert {pair for each in found for pair in named_by(each)} - there == set()


@pytest.mark.parametrize("values", KINDS, ids=NAMES)
def test_services_and_policies_lead_to_the_pods_of_their_name(values: dict[str, Any]) -> None:
    found = rendering.objects(values)
    for name in (AGENT, EXTENDER):
        (pods,) = (each for each in found if each["kind"] in ("DaemonSet", "Deployment")
                   and each["metadata"]["name"] == name)  # fmt: skip
        labels = pods["spec"]["template"]["metadata"]["labels"].items()
        ports = {
            port["name"]
            for container in pods["spec"]["template"]["spec"]["containers"]
            for port in container.get("ports", [])
        }
        assert pods["spec"]["selector"]["matchLabels"].items() <= labels
        for each in found:
            if each["metadata"]["name"] != name:
                continue
            if each["kind"] == "Service":
                assert each["spec"]["selector"].items() <= labels
                assert {port["targetPort"] for port in each["spec"]["ports"]} == ports
            if each["kind"] == "NetworkPolicy":
                assert each["spec"]["podSelector"]["matchLabels"].items() <= labels
                rules = each["spec"]["ingress"]
                assert {port["port"] for rule in rules for port in rule["ports"]} == ports


def test_a_part_that_is_switched_off_leaves_nothing_of_itself() -> None:
    whole, runtime = rendering.objects(), {"create": False}
    off = {"agent": {"enabled": False}, "scheduler": {"enabled": False}, "runtimeClass": runtime}
    assert [each["kind"] for each in rendering.objects(off)] == ["ConfigMap"]
    for part, name in (("agent", AGENT), ("scheduler", EXTENDER)):
        left = rendering.objects({part: {"enabled": False}})
        assert left == [each for each in whole if not of(each, name)]


def of(each: dict[str, Any], name: str) -> bool:
    return bool(each["metadata"]["labels"]["app.kubernetes.io/name"] == name)


def named_by(each: dict[str, Any]) -> Iterator[tuple[str, str]]:
    """Kind and name of each object that this object needs."""
    if "roleRef" in each:
        role = (each["roleRef"]["kind"], each["roleRef"]["name"])
        if each["metadata"].get("namespace") != "kube-system" and "system:" not in role[1]:
            yield role
        for subject in each["subjects"]:
            assert subject["namespace"] == "vcuda"
            yield subject["kind"], subject["name"]
    if each["kind"].endswith("AdmissionPolicyBinding"):
        yield each["kind"].removesuffix("Binding"), each["spec"]["policyName"]
    spec = each.get("spec", {}).get("template", {}).get("spec")
    if spec:
        yield "ServiceAccount", spec["serviceAccountName"]
        volumes = {volume["name"] for volume in spec["volumes"]}
        mounts = itertools.chain(*(container["volumeMounts"] for container in spec["containers"]))
        assert volumes == {mount["name"] for mount in mounts}
        for volume in spec["volumes"]:
            if "configMap" in volume:
                yield "ConfigMap", volume["configMap"]["name"]
            if "secret" in volume:
                yield "Secret", volume["secret"]["secretName"]
