"""What the node agent costs: CPU and memory beside many containers, and Allocate's answer.

8 GPUs of an H200's size, 128 containers that share them, a kubelet that holds 80 pods. Records and
pages are on a tmpfs, as /run is.
"""

from __future__ import annotations

import contextlib
import glob
import os
import random
import shutil
import socket
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path

from bench.agent import cri
from bench.result import Figure
from support.agent.node_agent import Agent, AgentNode
from support.api_server.cluster_api import KubeApi
from support.kubelet.fake_kubelet import api
from support.ledger.samples import record
from support.ledger.tenants import always_busy
from support.product import install
from support.waiting import until
from vcuda_oci.host import host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.policies import ELASTIC, FIXED
from vcuda_oci.pages import layout, limits, page_reader

GPUS, CONTAINERS_EACH = 8, 16
MEMORY_MIB = 143771
SECONDS = 30
PODS, CALLS = 80, 200
CORE, MEMORY = "tencent.com/vcuda-core", "tencent.com/vcuda-memory"
GOAL_CPU, GOAL_MIB, GOAL_MS = 1.0, 80.0, 5.0
CORES, UNITS = 10, 56  # of one container


def measure(say: Callable[[str], None]) -> list[Figure]:
    with contextlib.ExitStack() as stack:
        folder = tempfile.mkdtemp(dir="/dev/shm", prefix="vb")
        stack.callback(shutil.rmtree, folder)
        prefix, figures = folder + "/usr", []
        install(prefix, folder + "/etc")
        for policy in (ELASTIC, FIXED):
            place = Path(folder, policy)
            place.mkdir()
            gpu = ("--gpus", str(GPUS), "--memory", f"{MEMORY_MIB}MiB")
            node = AgentNode(place, prefix, *gpu)
            stack.callback(node.close)
            node.kubelet.start()
            _hold(node, policy)
            say(f"{GPUS} GPUs, {GPUS * CONTAINERS_EACH} containers, all {policy}: {SECONDS} s")
            with node.agent(30) as agent:
                until(lambda node=node: bool(node.kubelet.healthy(MEMORY)))
                figures += _cost(agent, f"all {policy}")
                if policy == ELASTIC:
                    until(lambda node=node: _is_granted(node))
                    say("the same, all at work")
                    usage = glob.glob(f"{Ledger(node.state_dir).containers}/*/usage")
                    # More usage at each of the agent's polls.
                    with always_busy(usage, 0.05, 1_000_000):
                        figures += _cost(agent, f"all {policy} and at work")
            if policy == ELASTIC:
                say(f"Allocate, {CALLS} times each, with an API server that is away")
                away = KubeApi()
                away.start()
                away.stop()
                node.configure(listen=f"127.0.0.1:{_free_port()}")
                words = ("--kubeconfig", away.kubeconfig(f"{place}/kubeconfig"))
                with node.agent(30, *words) as agent:
                    until(lambda node=node: bool(node.kubelet.healthy(MEMORY)))
                    time.sleep(SECONDS)  # as it is at rest
                    figures.append(_memory(agent, "of a cluster, and with metrics"))
                    figures += _allocate(node)
    return [*figures, *cri.measure(say)]


def _hold(node: AgentNode, policy: str) -> None:
    """Records and pages of the containers, as claims write them."""
    facts = host.load(str(node.gpu.root), node.state_dir + "/host.json")
    ledger = Ledger(node.state_dir)
    memory, core = (MEMORY_MIB << 20) // CONTAINERS_EACH, 100 // CONTAINERS_EACH
    ceiling = core if policy == FIXED else 100
    for gpu in facts.gpus:
        for number in range(CONTAINERS_EACH):
            share = GpuShare(gpu.uuid, memory, core, policy, ceiling, core)
            allocation = record(f"bench-{gpu.index}-{number}", shares=[share])
            with ledger:
                ledger.write(allocation, limits.page_of(allocation))


def _is_granted(node: AgentNode) -> bool:
    """Whether the arbiter is at work: a container without a grant yet has rates without an end."""
    folder = f"{Ledger(node.state_dir).containers}/bench-0-0/limits"
    page = Path(folder).read_bytes()[: layout.LIMITS_SIZE]
    return page_reader.read_limits(page).rate_until_ns > 0


def _cost(agent: Agent, case: str) -> list[Figure]:
    processes = _with_descendants(agent.process.pid)
    time.sleep(2)  # its start is not its idling
    before, began = _cpu_seconds(processes), time.monotonic()
    time.sleep(SECONDS)
    used = _cpu_seconds(processes) - before
    percent = 100 * used / (time.monotonic() - began)
    return [
        Figure(f"agent.cpu, {case}", percent, "% of a core", GOAL_CPU, {}),
        _memory(agent, case),
    ]


def _memory(agent: Agent, case: str) -> Figure:
    memory = sum(_proportional_mib(pid) for pid in _with_descendants(agent.process.pid))
    return Figure(f"agent.memory, {case}", memory, "MiB", GOAL_MIB, {})


def _with_descendants(pid: int) -> list[int]:
    """The claim socket's workers are its children's children."""
    found = [pid]
    for each in found:
        for line in glob.glob(f"/proc/{each}/task/*/children"):
            found += map(int, Path(line).read_text().split())
    return found


def _free_port() -> int:
    with socket.socket() as listening:
        listening.bind(("127.0.0.1", 0))
        return int(listening.getsockname()[1])


def _cpu_seconds(processes: Sequence[int]) -> float:
    nanoseconds = 0
    for pid in processes:
        for thread in os.listdir(f"/proc/{pid}/task"):
            # Its first number: nanoseconds on a processor. Source: the kernel's sched-stats.rst.
            line = Path(f"/proc/{pid}/task/{thread}/schedstat").read_text()
            nanoseconds += int(line.split()[0])
    return nanoseconds / 1e9


def _proportional_mib(pid: int) -> float:
    """A page that n processes share counts one nth in each. One that has ended since has none."""
    try:
        lines = Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines()
    except (FileNotFoundError, ProcessLookupError):
        return 0
    (pss,) = (line for line in lines if line.startswith("Pss:"))
    return int(pss.split()[1]) / 1024


def _allocate(node: AgentNode) -> list[Figure]:
    """As the kubelet calls it: with IDs of its choice, while it keeps the answers of 80 pods."""
    kubelet, figures, dice = node.kubelet, [], random.Random(1)
    for number in range(PODS):
        kubelet.admit(f"pod{number}", "main", {CORE: CORES, MEMORY: UNITS})
    for resource, count in ((CORE, CORES), (MEMORY, UNITS)):
        stub, ids = kubelet.plugins[resource].stub, sorted(kubelet.devices(resource))
        times = []
        for _ in range(CALLS):
            asked = [{"devices_ids": dice.sample(ids, count)}]
            request = api.AllocateRequest(container_requests=asked)
            began = time.perf_counter()
            stub.Allocate(request, timeout=10)
            times.append((time.perf_counter() - began) * 1e3)
        times.sort()
        for name, at in (("p50", CALLS // 2), ("p99", CALLS * 99 // 100)):
            called = f"agent.Allocate {resource.partition('/')[2]} {name}"
            figures.append(Figure(called, times[at], "ms", GOAL_MS, {}))
    return figures
