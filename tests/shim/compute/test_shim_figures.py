"""The agent's figures equal what programs do with their share."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from shim.policy_node import PolicyNode
from support.agent.agent_http import Served
from support.gpu.guest import GIB, MIB, WORKLOAD
from vcuda_plugin.kube.node_gpus import NodeGpus

pytestmark = pytest.mark.timed


@pytest.fixture
def served(node: PolicyNode) -> Iterator[Served]:
    process = Served(node.state_dir)
    process.send_gpus(NodeGpus(node.host.gpus))
    yield process
    assert process.end() == 0


def figures_of(served: Served) -> dict[str, dict[str, Any]]:
    """The figures by container, one second after the last poll."""
    time.sleep(1.1)
    return {entry["id"]: entry for entry in served.tree("/usage")["tenants"]}


def test_a_program_held_at_its_share_and_one_refused_at_its_limit_are_reported(
    node: PolicyNode, served: Served
) -> None:
    busy, full = node.container(core="30"), node.container(core="20")
    refused = full.json(WORKLOAD, "alloc", "--chunk", "64MiB")
    assert refused["error"] == "CUDA_ERROR_OUT_OF_MEMORY"
    holding = full.start(WORKLOAD, "hold", "--bytes", "128MiB", "--seconds", "5")
    running = node.busy(busy, 5)
    time.sleep(1)
    late = node.container(core="10")
    late.run(WORKLOAD, "busy", "--seconds", "0.1", "--kernel-us", "300000")
    first, second = figures_of(served), figures_of(served)
    ends = [process.communicate(timeout=60) for process in (holding, running)]
    assert [process.returncode for process in (holding, running)] == [0, 0], ends
    assert 20 < second["c0"]["core_used_percent"] < 36
    for figure in ("busy_seconds", "waited_seconds", "launches"):
        assert first["c0"][figure] < second["c0"][figure], figure
    assert second["c1"]["memory_used_bytes"] == 128 * MIB
    assert second["c1"]["refusals"] > 0 == second["c0"]["refusals"]
    # One kernel of 0.3 s, without an earlier estimate.
    assert 0.1 < second["c2"]["overrun_seconds"] < 1
    assert figures_of(served)["c1"]["memory_used_bytes"] == 0
    assert served.tree("/usage")["gpus"][0]["promised_memory_bytes"] == GIB * 3 // 4
