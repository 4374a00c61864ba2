"""Why a container with host gaps waits, as `vcuda top` and the metrics show it, in virtual time."""

from __future__ import annotations

import asyncio
import json
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import pytest

from support.agent.agent_pages import samples
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from support.shares import loads
from support.shares.judge import MODELS, Tenant, judge
from support.shares.loads import Load
from vcuda_hook.live import turn_figures
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.http import exposition
from vcuda_plugin.agent.http.event_counts import Counts
from vcuda_plugin.agent.http.node_state import Node
from vcuda_plugin.kube.node_gpus import NodeGpus

pytestmark = pytest.mark.usefixtures("built")

# Prints the keeper's figures of the GPU at two moments.
READINGS = """
import json, os, sys, time
folder = json.loads(sys.argv[1])["state"] + "/turns"
readings = []
for seconds in (3, 6):
    time.sleep(seconds)
    (name,) = [name for name in os.listdir(folder) if not name.endswith(".new")]
    with open(f"{folder}/{name}") as file:
        readings.append(file.read())
print(json.dumps(readings))
"""
GPU = "GPU-0"
# 10 % of the GPU at most.
MOSTLY_GAPS = Load("1 ms, gap 9 ms", 1_000, gap_us=9_000)
SHARE, NOTHING = "waits: share used up", ""
FOR_C0, FOR_C1 = "waits: GPU held by c0", "waits: GPU held by c1"


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Tenants]:
    made = Tenants(str(tmp_path))
    for id in ("c0", "c1"):
        made.add_record(id, shares=[GpuShare(GPU, GIB, 30)])
    yield made
    made.close()


def waited(node: Tenants) -> dict[tuple[str, str], float]:
    """Seconds by container and reason, of the agent's metrics."""
    agent = Node("node-1", node.state_dir)
    agent.known = NodeGpus(gpus(16), unhealthy={})
    text = exposition.Pages().text(asyncio.run(agent.view()), Counts())
    return {
        (its["allocation"], its["reason"]): value
        for (name, labels), value in samples(text).items()
        for its in [dict(labels)]
        if name == "vcuda_container_gpu_waited_seconds_total"
    }


def told(node: Tenants, model: str, tenants: Sequence[Tenant]) -> tuple[list[str], Any]:
    """What `vcuda top` shows of each container, and parts of the time by the metrics: waits for a
    turn and for the share."""
    outcome = judge(MODELS[model], tenants, scripts=[READINGS])
    readings, seconds = [], []
    os.makedirs(node.state_dir + "/turns")
    for text in json.loads(outcome.said[0]):
        Path(node.state_dir, "turns", GPU).write_text(text)
        (figures,) = turn_figures.read(node.state_dir).values()
        readings.append(figures._replace(read_ns=figures.at_ns))  # it was read in virtual time
        seconds.append(waited(node))
    entries: list[dict[str, Any]] = [{"id": id, "name": id, "gpu_uuid": GPU} for id in ("c0", "c1")]
    earlier, later = readings
    turn_figures.add_to(entries, [], {GPU: earlier}, {GPU: later})
    window = (later.at_ns - earlier.at_ns) / 1e9
    parts = [
        [(seconds[1][id, reason] - seconds[0][id, reason]) / window for reason in ("turn", "share")]
        for id in ("c0", "c1")
    ]
    return [turn_figures.waits(entry) for entry in entries], parts


def near(*parts: float) -> Any:
    return pytest.approx(list(parts), abs=0.03)


@pytest.mark.parametrize("model", ["default", "slice 30 ms", "no preemption"])
@pytest.mark.parametrize(
    ("cores", "chosen", "shown", "parts"),
    [
        # Their gaps of 20 us are part of the turn.
        ((30, 70), (loads.WAITED, loads.AHEAD), [FOR_C1, FOR_C0], [near(0.7, 0), near(0.3, 0)]),
        ((30, 30), (loads.WAITED, loads.WAITED), [SHARE, SHARE], [near(0.3, 0.4)] * 2),
        ((10, 30), (loads.WAITED, loads.MS_5), [SHARE, SHARE], [near(0.3, 0.6), near(0.1, 0.6)]),
    ],
    ids=["all is asked", "time is left", "most time is left"],
)
def test_short_gaps_do_not_change_the_reason(
    node: Tenants, model: str, cores: tuple[int, int], chosen: Any, shown: Any, parts: Any
) -> None:
    tenants = [Tenant(core, load) for core, load in zip(cores, chosen)]
    assert told(node, model, tenants) == (shown, parts)


# It waits for half of the time; for the rest of that by its own bucket, which its page counts.
MOSTLY_SHARE = [pytest.approx(0, abs=0.03), pytest.approx(0.34, abs=0.06)]


@pytest.mark.parametrize("model", ["default", "slice 30 ms"])
@pytest.mark.parametrize(
    ("core", "neighbour", "shown", "parts"),
    [
        # It waits for the rest of a turn each time; its neighbour has had its share.
        (50, Tenant(50, loads.AHEAD), [FOR_C1, SHARE], [near(0.33, 0), near(0.07, 0.43)]),
        (50, Tenant(30, loads.REQUESTS), [NOTHING, NOTHING], [near(0, 0)] * 2),
        # It works for 1 of 20 ms: 9 are its own gap.
        (5, Tenant(30, loads.REQUESTS), [SHARE, NOTHING], [MOSTLY_SHARE, near(0, 0)]),
    ],
    ids=["beside a busy one", "both have time", "its share is small"],
)
def test_long_gaps_are_no_wait(
    node: Tenants, model: str, core: int, neighbour: Tenant, shown: Any, parts: Any
) -> None:
    assert told(node, model, [Tenant(core, MOSTLY_GAPS), neighbour]) == (shown, parts)
