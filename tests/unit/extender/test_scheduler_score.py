"""The scores of the nodes that fit."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from support.scheduler import clusters
from support.scheduler.clusters import container, gpus_of, node, pod
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.extender.filter.score import SHAPES, closeness, scores, useless


def holding(name: str, *cores: int) -> list[dict[str, Any]]:
    """Pods on `name` that hold so much of its GPUs, one each."""
    return [
        pod(
            f"{name}-{index}",
            container(core=core),
            node=name,
            shares={"main": [GpuShare(f"GPU-{name}-{index}", 1, core)]},
        )
        for index, core in enumerate(cores)
        if core
    ]


EMPTY = node("empty", gpus_of("empty", 16, 16, 16, 16))
SHARED = [node("shared", gpus_of("shared", 16, 16, 16, 16)), *holding("shared", 50)]
FULL = [node("full", gpus_of("full", 16, 16, 16, 16)), *holding("full", 100, 100, 100, 50)]
NODES = ["empty", "shared", "full"]


def scored(asked: dict[str, Any], order: str = "binpack", **annotations: str) -> list[int]:
    cluster = clusters.cluster(EMPTY, *SHARED, *FULL, order=order)
    pod_annotations = {
        key.replace("_", "/", 1).replace("_", "-"): text for key, text in annotations.items()
    }
    ask = clusters.ask(container(**asked), annotations=pod_annotations)
    found = scores(cluster, ask, [*NODES, "nowhere"])
    assert found[3] == 0
    assert all(0 <= score <= 10 for score in found)
    return found[:3]


def test_binpack_prefers_the_fuller_node_and_spread_the_emptier() -> None:
    empty, shared, full = scored({"core": 50})
    assert empty < shared <= full
    empty, shared, full = scored({"core": 50}, order="spread")
    assert empty >= shared > full
    assert scored({"core": 50}, "binpack", vcuda_io="") == scored({"core": 50})
    by_pod = scored({"core": 50}, **{"hami.io_node-scheduler-policy": "spread"})
    assert by_pod[0] > by_pod[2]


def test_a_share_leaves_whole_gpus_to_requests_for_whole_ones() -> None:
    cluster = clusters.cluster(
        node("broken", gpus_of("broken", 16, 16)),
        *holding("broken", 60),
        node("whole", gpus_of("whole", 16, 16)),
        *holding("whole", 100),
    )
    # Both are half full or so; only one of them must break a GPU for it.
    broken, whole = scores(cluster, clusters.ask(container(core=40)), ["broken", "whole"])
    assert broken > whole


def test_fragmentation_is_counted_over_the_likely_requests() -> None:
    chance = dict(SHAPES)
    assert sum(chance.values()) == pytest.approx(1)
    # A whole GPU serves all requests of up to one; of half a GPU, half is lost on those above it.
    whole = chance[2] + chance[4] + chance[8]
    half = 0.5 * (chance[1] + chance[2] + chance[4] + chance[8])
    assert useless(np.array([[1.0], [0.5], [0.0]])) == pytest.approx([whole, half, 0])


def test_several_whole_gpus_go_where_they_are_near_each_other() -> None:
    near = [[0, 1, 9, 9], [1, 0, 9, 9], [9, 9, 0, 1], [9, 9, 1, 0]]
    four = (16, 16, 16, 16)
    cluster = clusters.cluster(
        node("pairs", gpus_of("pairs", *four, distances=near)),
        *holding("pairs", 9, 0, 9),
        node("pair", gpus_of("pair", *four, distances=near)),
        *holding("pair", 9, 9),
        node("unknown", gpus_of("unknown", *four)),
    )
    assert [closeness(cluster.nodes.get(name), 2) for name in ["pairs", "pair", "unknown"]] == [
        0,
        1,
        0.5,
    ]
    annotations = {"vcuda.io/placement": "topology"}
    pairs, pair = scores(
        cluster, clusters.ask(container(core=200), annotations=annotations), ["pairs", "pair"]
    )
    assert pair > pairs


def test_a_pod_of_several_containers_is_scored_by_how_full_the_node_gets() -> None:
    cluster = clusters.cluster(EMPTY, *SHARED, *FULL)
    ask = clusters.ask(container("a", core=10), container("b", core=20))
    empty, shared, full = scores(cluster, ask, NODES)
    assert empty <= shared < full
