"""The chart as Helm renders it."""

from __future__ import annotations

import functools
import json
import os
import subprocess
from typing import Any

import yaml

from support.needed import skip_or_fail

REPOSITORY = os.path.abspath(__file__).rsplit("/", 4)[0]
CHART = REPOSITORY + "/packaging/chart"
HELM = REPOSITORY + "/build/venv/bin/helm"
NEWEST = "1.37"
AGENT, EXTENDER = "vcuda-node-agent", "vcuda-scheduler-extender"
CLAIM_TEMPLATES = "vcuda-claim-templates"
# Values beside the chart's own under which it renders something else.
CLUSTER = {"scheduler": {"mode": "cluster", "tlsSecret": "extender-tls"}}
HAMI = {"settings": {"gpu-resource": "nvidia.com/gpu"}}
IN_A_CONTAINER = {"agent": {"driverRoot": "/run/nvidia/driver", "listen": "[::]:9400"}}

DRA = {"settings": {"gpu-offer": "dra", "gpu-resource": "nvidia.com/gpu"}}
CLAIMS = {**DRA, "claims": {"fromResources": True}}
PAGE = {
    "scheduler": {"page": {"enabled": True, "tlsSecret": "page-tls", "from": [{"podSelector": {}}]}}
}
MONITORING = {
    "monitoring": {
        "serviceMonitor": {"enabled": True, "labels": {"release": "main"}, "interval": "15s"},
        "prometheusRule": {"enabled": True, "labels": {"release": "main"}},
        "dashboards": {"enabled": True},
    }
}

Object = dict[str, Any]


def helm(*words: str, values: Object | None = None) -> subprocess.CompletedProcess[str]:
    if not os.path.exists(HELM):
        skip_or_fail("helm is missing; run 'make prepare'")
    return subprocess.run(
        [HELM, *words, "--values=/dev/stdin"],
        input=json.dumps(values or {}),
        capture_output=True,
        text=True,
        check=False,
    )


def objects(values: Object | None = None, version: str = NEWEST) -> list[Object]:
    """Of a cluster of that version, with these values over the chart's own."""
    return [each for each in _documents(values, version) if not _is_check(each)]


def checks(values: Object | None = None, version: str = NEWEST) -> list[Object]:
    """What `helm test` creates."""
    return [each for each in _documents(values, version) if _is_check(each)]


def _documents(values: Object | None, version: str) -> list[Object]:
    # Each caller has its own: they may be changed.
    found: list[Object] = yaml.load(_rendered(json.dumps(values or {}), version), _Exact)
    return found


def _is_check(each: Object) -> bool:
    return bool(each["metadata"].get("annotations", {}).get("helm.sh/hook") == "test")


@functools.lru_cache
def _rendered(values: str, version: str) -> str:
    words = ("template", "vcuda", CHART, "--namespace=vcuda", f"--kube-version={version}.0")
    done = helm(*words, values=json.loads(values))
    assert done.returncode == 0, done.stderr
    documents = yaml.load_all(done.stdout, _Exact)
    return json.dumps([document for document in documents if document])


def refusal(values: Object, version: str = NEWEST) -> str:
    """Helm's error in place of manifests."""
    done = helm("template", "vcuda", CHART, f"--kube-version={version}.0", values=values)
    assert (done.returncode, done.stdout) == (1, ""), done.stdout
    return done.stderr


def one(found: list[Object], kind: str, name: str) -> Object:
    (match,) = [each for each in found if (each["kind"], each["metadata"]["name"]) == (kind, name)]
    return match


def pod_spec(found: list[Object], name: str) -> Object:
    kind = "DaemonSet" if name == AGENT else "Deployment"
    spec: Object = one(found, kind, name)["spec"]["template"]["spec"]
    return spec


class _Exact(yaml.CSafeLoader):
    """Refuses what Helm and the API server would each take half of."""

    def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict[Any, Any]:
        keys = [self.construct_object(key, deep=True) for key, _ in node.value]
        assert len(keys) == len(set(keys)), f"twice: {keys}"
        return super().construct_mapping(node, deep)
