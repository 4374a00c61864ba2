"""What a scrape of a full node costs: 8 GPUs, each shared by 16 containers with a process each."""

from __future__ import annotations

import asyncio
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable

from bench.result import Figure
from support.agent.agent_http import Served
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.http import exposition, node_state
from vcuda_plugin.agent.http.event_counts import Counts
from vcuda_plugin.kube.node_gpus import NodeGpus

GPUS, CONTAINERS, ROUNDS = 8, 16, 50
_MIB = 1 << 20


def measure(say: Callable[[str], None]) -> list[Figure]:
    folder = tempfile.mkdtemp(prefix="vb", dir="/dev/shm")
    tenants = Tenants(folder)
    try:
        for number in range(GPUS * CONTAINERS):
            pod = {"uid": f"u{number}", "namespace": "ml", "name": f"p{number}", "container": "c"}
            shares = [GpuShare(f"GPU-{number // CONTAINERS}", GIB, 6)]
            tenants.add_record(f"pod-u{number}.c", shares=shares, pod=pod)
            tenants.uses(f"pod-u{number}.c", held=GIB // 2)
        known = NodeGpus(gpus(*[16] * GPUS))
        say(f"{ROUNDS} scrapes")
        cost = statistics.median(_scrapes(tenants, known)) * 1e3
        served = Served(tenants.state_dir)
        served.send_gpus(known)
        served.get("/metrics")
        resident = _own_bytes(served.process.pid) / _MIB
        served.end()
    finally:
        tenants.close()
        shutil.rmtree(folder)
    name = f"scrape.{GPUS * CONTAINERS} containers"
    return [
        Figure(name, cost, "ms of CPU", 20.0, {}),
        Figure("scrape.memory", resident, "MiB, shared pages divided", None, {}),
    ]


def _scrapes(tenants: Tenants, known: NodeGpus) -> list[float]:
    """Seconds of CPU that each took, while every container used something else each time."""
    node_state.FRESH_SECONDS = 0
    node = node_state.Node("node-1", tenants.state_dir)
    node.known = known
    pages = exposition.Pages()

    async def all_of_them() -> list[float]:
        await node.view()
        found = []
        for turn in range(ROUNDS):
            for number in range(GPUS * CONTAINERS):
                keys = ("busy_ns", "throttled_ns", "overrun_ns", "launches", "refusals")
                moved = dict.fromkeys(keys, turn * 1234567)
                held, contexts = GIB // 2 + turn * _MIB, 1 + turn % 9
                tenants.uses(f"pod-u{number}.c", 0, held, contexts, **moved)
            began = time.process_time()
            pages.text(await node.view(), Counts())
            found.append(time.process_time() - began)
        return found

    return asyncio.run(all_of_them())


def _own_bytes(pid: int) -> int:
    with open(f"/proc/{pid}/smaps_rollup") as file:
        return next(int(line.split()[1]) << 10 for line in file if line.startswith("Pss:"))
