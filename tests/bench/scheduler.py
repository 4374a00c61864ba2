"""The scheduler extender at 100 to 15,000 nodes of 8 GPUs, over HTTP: costs by cluster size.

Each filter is asked of every node. Three processes: the extender, the caller, and the API server,
which is a fake. On two cores they take from each other, so the processor time of each is told too:
that of the extender is what a pair costs wherever it runs.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import random
import statistics
import tempfile
import time
from collections.abc import Callable
from concurrent.futures import ProcessPoolExecutor
from typing import Any

import orjson

from bench import scheduler_calls
from bench.result import Figure
from support.api_server.fake_api_server import PODS, FakeApiServer
from support.scheduler import clusters, extender
from support.scheduler.clusters import container
from support.scheduler.extender import Extender
from vcuda_oci.model.allocation import GpuShare

# Nodes, pods that hold GPUs, and the goal of the slowest filter but one in a hundred, in ms.
SIZES = (
    (100, 1_000, None),
    (500, 5_000, None),
    (1_000, 10_000, 5.0),
    (2_000, 20_000, None),
    (5_000, 40_000, 25.0),
    (15_000, 120_000, 15.0),
)
MOST_MIB = 1_536.0  # of any size
# How many nodes and pods the bindings under a lease are measured with.
LEASED = 1_000, 10_000
FILTERS, WARMING = 400, 40
PAIRS, WARMING_PAIRS = 2_000, 100
# The number of nodes that kube-scheduler checks for one pod in a large cluster.
CANDIDATES = 100
GPUS = 8
BLOCKS = 320  # units of 256 MiB: a GPU has 80 GiB
ASKS: tuple[dict[str, Any], ...] = (
    {"core": 10, "memory": 32},
    {"core": 30, "memory": 96},
    {"core": 50},
    {"core": 100},
    {"core": 200},
    {"core": 800},
    {"core": 99, "memory": 310},
    {"gpu": 1},
)


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises AssertionError: a pod that fits was not bound."""
    figures = []
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(1, mp_context=context) as caller:
        for nodes, pods, goal in SIZES:
            say(f"{nodes} nodes, {pods} pods")
            figures += _size(caller, nodes, pods, goal)
        say(f"{LEASED[0]} nodes, {LEASED[1]} pods, under a lease")
        figures += _under_a_lease(caller, *LEASED)
    return figures


def _size(caller: ProcessPoolExecutor, nodes: int, pods: int, goal: float | None) -> list[Figure]:
    api = FakeApiServer()
    fill(api, nodes, pods, random.Random(nodes))
    names = [f"node-{number}" for number in range(nodes)]
    found = {}
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(api.running())
        running = stack.enter_context(extender.running(api, folder))
        began = time.perf_counter()
        running.wait_ready(300)
        found["sync", "s"] = time.perf_counter() - began
        found["sync, its CPU", "s"] = _processor(running)

        asking = [clusters.pod("asking", container(**ask)) for ask in ASKS]
        bodies = [orjson.dumps({"Pod": pod, "Nodes": None, "NodeNames": names}) for pod in asking]
        asked = running.port, running.process.pid, bodies
        caller.submit(scheduler_calls.filters, *asked, WARMING).result()
        filters = caller.submit(scheduler_calls.filters, *asked, FILTERS).result()
        found["filter, its CPU", "ms"] = statistics.mean(filters.used)
        found["filter, its CPU, p99", "ms"] = statistics.quantiles(filters.used, n=100)[98]
        found["filter, median", "ms"] = statistics.median(filters.milliseconds)
        found["filter, p99", "ms"] = statistics.quantiles(filters.milliseconds, n=100)[98]

        found |= _pairs(caller, api, running, names, pods)
        found["memory", "MiB"] = _status(running, "VmHWM") / 1024
    goals = {"filter, p99": goal, "filter + bind": 1.0, "memory": MOST_MIB}
    return [
        Figure(f"scheduler.{nodes} nodes, {what}", value, unit, goals.get(what), {})
        for (what, unit), value in found.items()
    ]


def _under_a_lease(caller: ProcessPoolExecutor, nodes: int, pods: int) -> list[Figure]:
    api = FakeApiServer()
    fill(api, nodes, pods, random.Random(nodes))
    with contextlib.ExitStack() as stack:
        folder = stack.enter_context(tempfile.TemporaryDirectory())
        stack.enter_context(api.running())
        words = "--lease", "kube-system/vcuda-scheduler-extender"
        running = stack.enter_context(extender.running(api, folder, *words))
        running.wait_ready(300)
        running.wait(lambda: b"vcuda_extender_leader 1.0" in _page(running), 60)
        found = _pairs(caller, api, running, [f"node-{number}" for number in range(nodes)], pods)
    return [
        Figure(f"scheduler.{nodes} nodes, a lease, {what}", value, unit, None, {})
        for (what, unit), value in found.items()
    ]


def _pairs(
    caller: ProcessPoolExecutor, api: FakeApiServer, running: Extender, names: list[str], pods: int
) -> dict[tuple[str, str], float]:
    """New pods beside those that are there, filtered over some of the nodes and bound."""
    dice = random.Random(pods)
    new = [clusters.pod(f"new-{n}", container(core=5, memory=4)) for n in range(PAIRS)]
    chosen = [dice.sample(names, min(len(names), CANDIDATES)) for _ in new]
    api.put(*new)
    # Otherwise some pods are still unknown and are read from the API server one by one.
    running.wait(lambda: b"vcuda_extender_pods %d.0" % (pods + PAIRS) in _page(running), 60)
    first = new[:WARMING_PAIRS], chosen[:WARMING_PAIRS]
    caller.submit(scheduler_calls.pairs, running.port, *first).result()
    before, server_time = _processor(running), time.process_time()
    rest = new[WARMING_PAIRS:], chosen[WARMING_PAIRS:]
    pairs = caller.submit(scheduler_calls.pairs, running.port, *rest).result()
    count, server_time = len(pairs.milliseconds), time.process_time() - server_time
    return {
        ("filter + bind", "ms a pair"): pairs.seconds / count * 1e3,
        ("filter + bind, its CPU", "ms a pair"): (_processor(running) - before) / count * 1e3,
        ("filter + bind, the caller's CPU", "ms a pair"): pairs.cpu / count * 1e3,
        ("filter + bind, the API's CPU", "ms a pair"): server_time / count * 1e3,
    }


def _page(running: Extender) -> bytes:
    return running.call("GET", "/metrics")[1]


def fill(api: FakeApiServer, nodes: int, pods: int, dice: random.Random) -> None:
    """Nodes of 8 GPUs, pods with shares of them where there is room, and a quota of them all."""
    for number in range(nodes):
        name = f"node-{number}"
        gpus = clusters.gpus_of(name, *[BLOCKS // 4] * GPUS, model="NVIDIA H100 80GB HBM3")
        api.add(clusters.node(name, gpus, labels={"gaia.tencent.com/gpu-model": "H100"}))
    quota = {"default": {"quota": {"H100": nodes * GPUS}}}
    named = {"name": "gpuquota", "namespace": "kube-system"}
    api.add({"metadata": named, "data": {"gpu_quota": orjson.dumps(quota).decode()}})
    free: dict[tuple[int, int], int] = {}
    while len(api.objects[PODS]) < pods:
        core = dice.choice((10, 20, 25, 30, 50, 100))
        place = dice.randrange(nodes), dice.randrange(GPUS)
        if free.get(place, 100) < core:
            continue
        free[place] = free.get(place, 100) - core
        memory = BLOCKS * core // 100
        share = GpuShare(f"GPU-node-{place[0]}-{place[1]}", memory << 28, core)
        pod = clusters.pod(
            f"held-{len(api.objects[PODS])}",
            container(core=core, memory=memory),
            node=f"node-{place[0]}",
            shares={"main": [share]},
            phase="Running",
        )
        api.add(pod)


def _processor(running: Extender) -> float:
    """Seconds that it has used so far."""
    with open(f"/proc/{running.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(running: Extender, key: str) -> int:
    with open(f"/proc/{running.process.pid}/status") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith(key + ":")))
