"""Objects for the Prometheus operator and Grafana, with the operator's own definitions.

PROMETHEUS_CRDS names a folder with them, such as example/prometheus-operator-crd of its repository.
"""

from __future__ import annotations

import glob
import os
from typing import Any

from cluster.kubernetes.chart import NAMESPACE
from cluster.kubernetes.node import Node
from contract.chart import rendering

KINDS = ("ServiceMonitor", "PrometheusRule")


def test_api_server_stores_each_field_of_the_monitoring_objects(node: Node) -> None:
    definitions = [
        found
        for kind in KINDS
        for found in glob.glob(f"{os.environ['PROMETHEUS_CRDS']}/*_{kind.lower()}s.yaml")
    ]
    assert len(definitions) == len(KINDS)
    files = [f"--filename={file}" for file in definitions]
    node.kubectl("create", *files)
    try:
        node.kubectl("wait", "--for=condition=Established", *files)
        node.chart.install({**node.values(), **rendering.MONITORING})
        wanted = rendering.objects(rendering.MONITORING)
        dashboards = [each for each in wanted if each["metadata"]["name"].endswith("-dashboard")]
        assert len(dashboards) == 3
        # A field that a definition does not have would be dropped.
        for each in (*(one for one in wanted if one["kind"] in KINDS), *dashboards):
            kind, name = each["kind"], each["metadata"]["name"]
            stored = node.get(kind.lower(), name, "--namespace", NAMESPACE)
            assert content(stored) == content(each)
    finally:
        node.chart.install(node.values())
        node.kubectl("delete", *files)


def content(thing: Any) -> Any:
    return thing["metadata"]["labels"].get("release"), thing.get("spec"), thing.get("data")
