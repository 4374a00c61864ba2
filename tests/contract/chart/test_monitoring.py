"""Objects for Prometheus and Grafana, and the pod of `helm test`.

The kinds of monitoring.coreos.com were compared with the Prometheus operator 0.93.
"""

from __future__ import annotations

from typing import Any

import kubernetes_validate
import pytest
import yaml

from contract.chart import rendering
from contract.chart.rendering import AGENT, CLUSTER, DRA, EXTENDER, MONITORING
from support.files import ROOT

FOLDER = ROOT + "/packaging/chart/monitoring"


def test_monitoring_is_off_until_its_values_switch_it_on() -> None:
    usual, found = rendering.objects(), rendering.objects(MONITORING)
    more = [each for each in found if each not in usual]
    assert [each for each in usual if each not in found] == []
    assert {(each["kind"], each["metadata"]["name"]) for each in more} == {
        ("ServiceMonitor", AGENT),
        ("PrometheusRule", AGENT),
        *(("ConfigMap", f"vcuda-{name}-dashboard") for name in ("node", "quota", "tenant")),
    }
    assert [each for each in rendering.objects({**MONITORING, "agent": {"enabled": False}})
            if "Monitor" in each["kind"] or "Rule" in each["kind"]] == []  # fmt: skip


def test_service_monitor_scrapes_the_agents_service_and_retains_labels_of_pods() -> None:
    found = rendering.objects(MONITORING)
    monitor = rendering.one(found, "ServiceMonitor", AGENT)
    assert monitor["metadata"]["labels"]["release"] == "main"
    node = {"sourceLabels": ["__meta_kubernetes_pod_node_name"], "targetLabel": "instance"}
    assert monitor["spec"] == {
        "selector": {"matchLabels": {"app.kubernetes.io/name": AGENT}},
        "endpoints": [
            {
                "port": "metrics",
                "path": "/metrics",
                "interval": "15s",
                "honorLabels": True,
                "relabelings": [{**node, "action": "replace"}],
            }
        ],
    }
    service = rendering.one(found, "Service", AGENT)
    wanted = monitor["spec"]["selector"]["matchLabels"].items()
    assert wanted <= service["metadata"]["labels"].items()
    assert "metrics" in [port["name"] for port in service["spec"]["ports"]]


def test_rules_and_dashboards_arrive_as_the_tested_files_have_them() -> None:
    found = rendering.objects(MONITORING)
    with open(f"{FOLDER}/vcuda.rules.yml") as file:
        assert rendering.one(found, "PrometheusRule", AGENT)["spec"] == yaml.safe_load(file)
    for name in ("vcuda-node", "vcuda-quota", "vcuda-tenant"):
        config = rendering.one(found, "ConfigMap", f"{name}-dashboard")
        kubernetes_validate.validate(config, rendering.NEWEST, strict=True)
        assert config["metadata"]["labels"]["grafana_dashboard"] == "1"
        with open(f"{FOLDER}/{name}.json") as file:
            assert config["data"] == {f"{name}.json": file.read()}


@pytest.mark.parametrize(
    ("values", "kinds", "scheduler", "runtime_class"),
    [
        ({}, ["Pod"], "vcuda-scheduler", "vcuda"),
        (CLUSTER, ["Pod"], None, "vcuda"),
        (DRA, ["Pod", "ResourceClaimTemplate"], None, None),
        ({"settings": {"core-resource": ""}}, [], None, None),
    ],
    ids=["own scheduler", "the cluster's", "DRA", "no shares offered"],
)
def test_chart_check_asks_for_a_share_as_users_pods_do(
    values: Any, kinds: list[str], scheduler: str | None, runtime_class: str | None
) -> None:
    found = rendering.checks(values)
    assert [each["kind"] for each in found] == kinds
    for each in found:
        kubernetes_validate.validate(each, rendering.NEWEST, strict=True)
    for pod in found[:1]:
        assert pod["spec"].get("schedulerName") == scheduler
        assert pod["spec"].get("runtimeClassName") == runtime_class
        image = rendering.pod_spec(rendering.objects(values), AGENT)["containers"][0]["image"]
        assert [each["image"] for each in pod["spec"]["containers"]] == [image]
        assert not pod["metadata"]["labels"].items() & {
            ("app.kubernetes.io/name", name) for name in (AGENT, EXTENDER)
        }
