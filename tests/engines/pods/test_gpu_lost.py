"""A lost GPU under running containers: containers on other GPUs continue."""

from __future__ import annotations

import json
import os
import subprocess
from typing import Any

from engines.hostile.test_bypass_watch import LIMIT, WatchedNode, watched
from support.engines.base import Result
from support.product import MIB, SOFTGPU, asking
from support.waiting import until
from vcuda_oci.ledger import unhealthy
from vcuda_oci.pages import page_reader

__all__ = ["watched"]  # a fixture
FILL = ["vcuda-workload", "alloc", "--chunk", str(64 * MIB)]
HOLD = ["vcuda-workload", "hold", "--bytes", str(256 * MIB), "--seconds", "100"]


def test_container_retains_its_share_and_continues_when_the_gpu_is_restored(
    watched: Any, container: str, scratch: str
) -> None:
    def tool(*words: str) -> None:
        subprocess.run([SOFTGPU, words[0], f"{scratch}/driver", *words[1:]], check=True)

    # A process that is killed here is killed by the agent.
    with watched("runc-v2", bypass="stop") as node:
        sick, well = (f"{container}-{name}" for name in ("sick", "well"))
        for name, gpu in ((sick, "0"), (well, "1")):
            assert start(node, name, gpu).rc == 0
        before = records(node)
        try:
            tool("fail", "--lost", "0")
            until(lambda: "GPU is lost" in unhealthy.reasons(node.state_dir).values())
            assert list(unhealthy.reasons(node.state_dir)) == [before[sick]["shares"][0]["uuid"]]
            # Programs on the lost GPU get the driver's error, programs on the other none.
            assert node.engine.exec(sick, FILL).rc != 0
            assert most(node, well) == LIMIT - 256 * MIB
            granted = until_ns(node, well)
            until(lambda: until_ns(node, well) > granted)
            refused = start(node, f"{container}-new", "0")
            assert refused.rc == 1
            assert "is unhealthy: " in refused.stderr
            assert (records(node), node.found()) == (before, [])
            tool("heal")
            until(lambda: unhealthy.reasons(node.state_dir) == {})
            assert most(node, sick) == most(node, well) == LIMIT - 256 * MIB
            assert records(node) == before
        finally:
            node.engine.delete(sick)
            node.engine.delete(well)
        assert records(node) == {}


def start(node: WatchedNode, name: str, gpu: str) -> Result:
    asked = asking(node.engine, core=30, memory_bytes=LIMIT, gpu=gpu, policy="elastic")
    return node.engine.start(name, HOLD, **asked)


def most(node: WatchedNode, name: str) -> int:
    """Bytes that a program in the container can allocate now."""
    return int(json.loads(node.engine.exec(name, FILL).stdout)["exact_bytes"])


def until_ns(node: WatchedNode, name: str) -> int:
    """When what the arbiter has granted it ends."""
    with open(f"{node.state_dir}/containers/{name}/limits", "rb") as page:
        return page_reader.read_limits(page.read()).rate_until_ns


def records(node: WatchedNode) -> dict[str, Any]:
    found = {}
    for name in os.listdir(node.state_dir + "/allocations"):
        with open(f"{node.state_dir}/allocations/{name}") as file:
            found[name.removesuffix(".json")] = json.load(file)
    return found
