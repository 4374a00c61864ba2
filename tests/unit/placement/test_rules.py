"""The settings that placement goes by, as every way to a share has them."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import Rules, rules_of
from vcuda_oci.system import settings_file
from vcuda_plugin.kube import node_gpus
from vcuda_plugin.kube.node_gpus import NodeGpus

LINES = """
placement = "spread"
memory-overcommit = "1.5"
context-memory = "300MiB"
meter-copies = "yes"
idle-suspend = "30s"
oversubscribe = "rotate"
mps-partitions = "50, 50"
suspend-memory = "64GiB"
"""
OTHER: dict[str, Any] = {
    "placement": "spread",
    "overcommit": 1.5,
    "context_bytes": 300 << 20,
    "meter_copies": True,
    "idle_suspend": 30,
    "rotates": True,
    "partitions": (50, 50),
    "host_bytes": 64 * GIB,
}


def test_each_rule_is_read_from_the_settings() -> None:
    assert list(OTHER) == list(Rules().fields())
    assert _by("") == Rules().fields()
    assert _by(LINES) == OTHER


def _by(lines: str) -> dict[str, Any]:
    found = rules_of(settings_file.parse(lines, "config.toml"))
    return found.replaced(partitions=tuple(found.partitions)).fields()


@given(st.integers(1, 1 << 40), st.floats(1, 100))
def test_memory_is_found_again_from_what_may_be_promised(size: int, factor: float) -> None:
    gpu, rules = Gpu("GPU-0", 0, 0, size, "Soft"), Rules(overcommit=factor)
    promised = rules.promised(gpu)
    assert promised >= size and abs(rules.memory_of(promised) - size) <= 1
    assert rules.once().promised(gpu) == size


def test_node_replaces_the_clusters_rules_only_where_it_has_its_own() -> None:
    cluster = Rules(**OTHER)
    node = node_gpus.parse(NodeGpus(gpus(16), overcommit=3).dump())
    assert node.rules(cluster) == cluster.replaced(overcommit=3)
