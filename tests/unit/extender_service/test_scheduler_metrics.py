"""The extender's quota metrics equal the figures that it decides by."""

from __future__ import annotations

import time
from types import SimpleNamespace
from typing import Any

from prometheus_client.parser import text_string_to_metric_families as parsed

from support.scheduler import clusters
from support.scheduler.clusters import container, gpus_of, node, pod
from vcuda_plugin.extender.cluster.cluster import Cluster
from vcuda_plugin.extender.http.metrics import Metrics
from vcuda_plugin.extender.quota.quota_limits import parse


def page(cluster: Cluster) -> dict[str, dict[tuple[str, ...], float]]:
    """By name, and by the values of labels, sorted."""
    heard: Any = SimpleNamespace(heard=time.monotonic())
    families = parsed(Metrics(cluster, [heard], str).page().decode())
    return {
        family.name: {tuple(sorted(s.labels.values())): s.value for s in family.samples}
        for family in families
    }


def quotas(text: str) -> Any:
    return parse({"metadata": {"name": "gpuquota"}, "data": {"gpu_quota": text}})


def test_each_quota_is_shown_beside_what_its_namespace_uses() -> None:
    labels = {"gaia.tencent.com/gpu-model": "M40"}
    first = node("a", gpus_of("a", 16, 16), labels=labels)
    bound = pod("p", container(core=50, memory=16), node="a")
    cluster = clusters.cluster(first, bound)
    assert page(cluster)["vcuda_extender_quota_used_cards"] == {}
    limits = '{"default": {"quota": {"M40": 1.5, "P100": 2}}, "idle": {"quota": {"M40": 1}}}'
    cluster.quota.limits = quotas(limits)
    found = page(cluster)
    assert found["vcuda_extender_quota_known"] == {(): 1}
    assert found["vcuda_extender_quota_limit_cards"] == {
        ("M40", "default"): 1.5, ("P100", "default"): 2, ("M40", "idle"): 1
    }  # fmt: skip
    assert found["vcuda_extender_quota_used_cards"] == {
        ("M40", "default"): 0.5, ("P100", "default"): 0, ("M40", "idle"): 0
    }  # fmt: skip
    cluster.quota.trouble = "no JSON"
    assert page(cluster)["vcuda_extender_quota_known"] == {(): 0}
