"""The scheduler extender at 100, 1,000 and 5,000 nodes of 8 GPUs, over HTTP.

Each filter is asked of every node. The API server is played, beside the caller in one process; on
two cores they take from each other.
"""

from __future__ import annotations

import contextlib
import os
import random
import statistics
import tempfile
import threading
import time
from collections.abc import Callable
from typing import Any

import orjson

from bench.result import Figure
from unit import clusters, extender
from unit.clusters import container
from unit.extender import Extender
from unit.played_api import PODS, PlayedApi
from vcuda_oci.allocation import GpuShare

# Nodes, pods that hold GPUs, and the goal of the slowest filter but one in a hundred, in ms.
SIZES = ((100, 1_000, None), (1_000, 10_000, 5.0), (5_000, 40_000, 25.0))
FILTERS, WARMING = 400, 40
PAIRS = 2_000
CALLERS = 4
# As many as kube-scheduler looks at for one pod in a large cluster.
CANDIDATES = 100
GPUS = 8
BLOCKS = 320  # units of 256 MiB: a GPU has 80 GiB
ASKS = (
    *({"core": 10, "memory": 32}, {"core": 30, "memory": 96}, {"core": 50}, {"core": 100}),
    *({"core": 200}, {"core": 800}, {"core": 99, "memory": 310}, {"gpu": 1}),
)


def measure(say: Callable[[str], None]) -> list[Figure]:
    """Raises AssertionError: a pod that fits was not bound."""
    figures = []
    for nodes, pods, goal in SIZES:
        say(f"{nodes} nodes, {pods} pods")
        api, dice = PlayedApi(), random.Random(nodes)
        fill(api, nodes, pods, dice)
        with contextlib.ExitStack() as stack:
            folder = stack.enter_context(tempfile.TemporaryDirectory())
            stack.enter_context(api.running())
            running = stack.enter_context(extender.running(api, folder))
            began = time.perf_counter()
            running.wait_ready(300)
            synced = time.perf_counter() - began
            say("filter")
            before = _processor(running)
            filters = _filters(running, nodes)
            filtering = (_processor(running) - before) / (WARMING + FILTERS) * 1e3
            memory = _status(running, "VmHWM") / 1024
            say("filter and bind")
            pair, processor = _pairs(api, running, nodes, dice)
        cuts = statistics.quantiles(filters, n=100)
        name = f"scheduler.{nodes} nodes, "
        figures += [
            Figure(name + "filter, median", statistics.median(filters), "ms", None, {}),
            Figure(name + "filter, p99", cuts[98], "ms", goal, {}),
            Figure(name + "filter, its CPU", filtering, "ms", None, {}),
            Figure(name + "filter + bind", pair, "ms a pair", 1.0, {}),
            Figure(name + "filter + bind, its CPU", processor, "ms a pair", None, {}),
            Figure(name + "memory", memory, "MiB", None, {}),
            Figure(name + "sync", synced, "s", None, {}),
        ]
    return figures


def fill(api: PlayedApi, nodes: int, pods: int, dice: random.Random) -> None:
    """Nodes of 8 GPUs, pods with shares of them where there is room, and a quota of them all."""
    for number in range(nodes):
        name = f"node-{number}"
        gpus = clusters.told(name, *[BLOCKS // 4] * GPUS, model="NVIDIA H100 80GB HBM3")
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


def _filters(running: Extender, nodes: int) -> list[float]:
    """Milliseconds of each, as the caller sees it."""
    names, took = [f"node-{number}" for number in range(nodes)], []
    with contextlib.closing(running.connect()) as connection:
        for number in range(WARMING + FILTERS):
            asking = clusters.pod("asking", container(**ASKS[number % len(ASKS)]))
            body = orjson.dumps({"Pod": asking, "Nodes": None, "NodeNames": names})
            began = time.perf_counter()
            connection.request("POST", "/scheduler/predicates", body)
            answer = connection.getresponse()
            answer.read()
            took.append((time.perf_counter() - began) * 1e3)
            assert answer.status == 200
    return took[WARMING:]


def _pairs(
    api: PlayedApi, running: Extender, nodes: int, dice: random.Random
) -> tuple[float, float]:
    """Milliseconds between one bound pod and the next, and of the extender's processor time."""
    pods = [clusters.pod(f"new-{number}", container(core=5, memory=4)) for number in range(PAIRS)]
    api.put(*pods)
    names = [f"node-{number}" for number in range(nodes)]
    chosen = [dice.sample(names, min(nodes, CANDIDATES)) for _ in pods]
    failures: list[str] = []

    def call(first: int) -> None:
        with contextlib.closing(running.connect()) as connection:
            for number in range(first, PAIRS, CALLERS):
                failures.extend(_place(connection, pods[number], chosen[number]))

    before, began = _processor(running), time.perf_counter()
    callers = [threading.Thread(target=call, args=(first,)) for first in range(CALLERS)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    took, used = time.perf_counter() - began, _processor(running) - before
    assert not failures, failures[:3]
    return took / PAIRS * 1e3, used / PAIRS * 1e3


def _place(connection: Any, pod: dict[str, Any], names: list[str]) -> list[str]:
    """Filter, and bind to the first node that fits; what went wrong."""
    metadata = pod["metadata"]
    found = _post(connection, "predicates", {"Pod": pod, "NodeNames": names})["NodeNames"]
    asked = {"PodName": metadata["name"], "PodNamespace": "default", "PodUID": metadata["uid"]}
    error = _post(connection, "bind", {**asked, "Node": found[0]})["Error"]
    return [error] if error else []


def _post(connection: Any, verb: str, body: Any) -> Any:
    connection.request("POST", "/scheduler/" + verb, orjson.dumps(body))
    return orjson.loads(connection.getresponse().read())


def _processor(running: Extender) -> float:
    """Seconds that it has used so far."""
    with open(f"/proc/{running.process.pid}/stat") as file:
        fields = file.read().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _status(running: Extender, key: str) -> int:
    with open(f"/proc/{running.process.pid}/status") as lines:
        return int(next(line.split()[1] for line in lines if line.startswith(key + ":")))
