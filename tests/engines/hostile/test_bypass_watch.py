"""The agent's watch from outside: processes that bypass the shim in a real container, and those
that do not."""

from __future__ import annotations

import contextlib
import json
import os
import signal
import subprocess
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from contract.agent.test_device_plugin import CORE, offered
from support.agent.node_agent import Agent, AgentNode, only_child
from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.product import MIB, SOFTGPU, Product, asking
from support.waiting import until
from vcuda_hook.live import container_processes
from vcuda_oci.ledger import events, liveness
from vcuda_plugin.agent.bypass import container_stop
from vcuda_plugin.agent.bypass.held_containers import Held, HeldContainers

LIMIT = 1024 * MIB
# What a program takes that loads the driver in the place of the shim.
TAKEN = 8 * LIMIT
ROUND_THE_SHIM = (
    "ln -s /usr/local/vcuda/driver/cuda /tmp/libcuda.so.1; LD_LIBRARY_PATH=/tmp vcuda-workload"
)
GREEDY = ["sh", "-c", f"{ROUND_THE_SHIM} hold --bytes {TAKEN} --seconds 100"]
# Eight processes, with a context each, and all that their container may allocate.
FULL = [
    "sh", "-c",
    "for i in 1 2 3 4 5 6 7; do vcuda-workload hold --bytes 0 --seconds 100 & done;"
    f"exec vcuda-workload alloc --chunk {LIMIT} --hold 100",
]  # fmt: skip
FOUND_SECONDS = 30


class AgentInside(Agent):
    """Run through nsenter, which hands on no signal."""

    def pid(self) -> int:
        return only_child(self.process.pid)

    def fork_server(self) -> int:
        return only_child(self.pid())

    def end(self) -> None:
        os.kill(self.pid(), signal.SIGTERM)
        assert self.process.wait(30) == 0, self.log()
        super().end()


class WatchedNode:
    """An engine's private host with the agent on it, and a driver root of its own."""

    def __init__(self, engine: Engine, product: Product, agent: Agent) -> None:
        self.engine, self.state_dir, self.agent = engine, product.state_dir(engine), agent
        self.product = product

    def start(self, container: str, args: list[str], memory_bytes: int = LIMIT) -> str:
        asked = asking(self.engine, core=30, memory_bytes=memory_bytes)
        started = self.engine.start(container, args, **asked)
        assert started.rc == 0, started.stderr
        return container

    def found(self) -> list[dict[str, Any]]:
        return [
            event for event in events.read(self.state_dir) if event["kind"] == "bypass-found"
        ]  # fmt: skip

    def await_found(self, why: str) -> dict[str, Any]:
        until(lambda: any(event["why"] == why for event in self.found()), seconds=FOUND_SECONDS)
        return next(event for event in self.found() if event["why"] == why)

    def watch(self) -> int:
        """The pid of the agent's process that watches."""
        return self.agent.child("outside_watch")

    def shown(self) -> dict[str, Any]:
        """The container's entry of `vcuda ps --json`; it is the only one."""
        words = [f"{self.product.prefix}/bin/vcuda", "--config", self.product.config, "ps"]
        done = subprocess.run(self.engine.host.inside([*words, "--json"]), capture_output=True)
        assert done.returncode == 0, done.stderr
        (entry,) = json.loads(done.stdout)
        return dict(entry)

    def says(self, container: str) -> bool:
        return bool(self.engine.logs(container))


@pytest.fixture
def watched(
    product: Product, start_engine: Callable[[str], Engine], scratch: str
) -> Iterator[Callable[..., contextlib.AbstractContextManager[WatchedNode]]]:
    """Makes the node of an engine, with these options of `softgpu create` and settings."""
    folder = os.path.join(scratch, "driver")

    @contextlib.contextmanager
    def on(name: str, *gpu: str, **settings: Any) -> Iterator[WatchedNode]:
        engine = start_engine(name)
        subprocess.run([SOFTGPU, "create", folder, "--gpus", "2", *gpu], check=True)
        with product.on(engine, driver_root=folder, **settings):
            program = os.path.join(product.prefix, "bin/vcuda-node-agent")
            words = [program, "--config", product.config, "--kubelet-dir", scratch]
            agent = AgentInside(engine.host.inside(words))
            try:
                agent.await_ready()
                yield WatchedNode(engine, product, agent)
            finally:
                agent.end()

    yield on
    subprocess.run([SOFTGPU, "destroy", folder], check=True)


@pytest.mark.parametrize("name", ["runc-v1", "runc-v2"])
def test_container_that_bypasses_the_shim_is_stopped_and_its_neighbour_continues(
    watched: Any, container: str, name: str
) -> None:
    with watched(name, bypass="stop") as node:
        neighbour = node.start(f"{container}-honest", FULL)
        greedy = node.start(f"{container}-greedy", GREEDY)
        try:
            assert node.engine.wait(greedy) == 137
            until(lambda: len(node.found()) == 2)
            assert {event["why"] for event in node.found()} == {"memory", "shim"}
            assert {event["allocation"] for event in node.found()} == {greedy}
            assert all(event["stops"] for event in node.found())
            assert '"error": "CUDA_ERROR_OUT_OF_MEMORY"' in node.engine.logs(neighbour)
            assert node.engine.exec(neighbour, ["true"]).rc == 0
        finally:
            node.engine.delete(greedy)
            node.engine.delete(neighbour)


def test_only_a_pod_that_bypasses_the_shim_is_reported(watched: Any, container: str) -> None:
    with watched("containerd-cri", "--context-memory", "300MiB") as node:
        # A killed watch is restarted.
        os.kill(node.watch(), signal.SIGKILL)
        honest = node.start(f"{container}-honest", FULL)
        until(lambda: node.says(honest))
        greedy = node.start(f"{container}-greedy", GREEDY)
        began = time.monotonic()
        try:
            event = node.await_found("memory")
            assert time.monotonic() - began < FOUND_SECONDS
            assert event["text"].startswith(
                f"pod default/{greedy}, container main holds {(TAKEN + 300 * MIB) / 2**30:.2f} GiB"
                f" of {event['gpu']}, its limit is 1.00 GiB: process"
            )
            assert "(vcuda-workload)" in event["text"]
            assert (event["used"], event["limit"]) == (TAKEN + 300 * MIB, LIMIT)
            node.await_found("shim")
            # More polls without a report.
            time.sleep(5)
            assert len(node.found()) == 2
            assert node.engine.exec(greedy, ["true"]).rc == 0
            lines = [line for line in node.agent.log() if "_main:" in line or "GiB" in line]
            assert [event["text"] in line for line in lines].count(True) == 1
        finally:
            node.engine.delete(greedy)
            node.engine.delete(honest)


def test_forking_container_in_the_hosts_pid_namespace_is_stopped_completely(
    start_engine: Callable[[str], Engine],
    product: Product,
    container: str,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """No pid namespace takes its processes along, and each that ends is followed by another."""
    engine = start_engine("runc-v2")
    assert isinstance(engine, LowLevel)
    make = engine.make_bundle

    def without_a_pid_namespace(wanted: Wanted) -> str:
        path = make(wanted) + "/config.json"
        with open(path) as file:
            config = json.load(file)
        spaces = config["linux"]["namespaces"]
        config["linux"]["namespaces"] = [space for space in spaces if space["type"] != "pid"]
        with open(path, "w") as file:
            json.dump(config, file)
        return os.path.dirname(path)

    monkeypatch.setattr(engine, "make_bundle", without_a_pid_namespace)
    restless = ["sh", "-c", "for i in $(seq 20); do (while :; do sleep 0.01; done) & done; wait"]
    with product.on(engine):
        asked = asking(engine, core=10, memory_bytes=LIMIT)
        names = [f"{container}-{name}" for name in ("stopped", "left")]
        for name in names:
            assert engine.start(name, restless, **asked).rc == 0
        try:
            containers = HeldContainers(product.state_dir(engine))
            stopped, left = sorted(
                containers.follow().values(), key=lambda held: names.index(held.allocation.id)
            )
            members = [members_of(engine, name) for name in names]
            until(lambda: all(len(each()) > 20 for each in members))
            for held, each in zip((stopped, left), members):
                # From out here its runtime's pids are not ours: by name then.
                assert owners(containers, each()) == {held}
            assert container_stop.stop(stopped, [], containers.of) >= 20
            until(lambda: members[0]() == [])
            assert len(members[1]()) > 20
        finally:
            for name in names:
                engine.delete(name)


def owners(containers: HeldContainers, pids: list[int]) -> set[Held | None]:
    found = set()
    for pid in pids:
        with contextlib.suppress(OSError):  # it has ended
            found.add(containers.of(pid))
    return found


def members_of(engine: Engine, container: str) -> Callable[[], list[int]]:
    place = {"0": f"{engine.host.cgroup_parent}/{container}"}
    return lambda: [pid for pid in container_processes.below(place) if liveness.start_time(pid)]


def test_the_drivers_own_limit_holds_a_process_that_bypasses_the_shim(
    watched: Any, container: str
) -> None:
    """Contexts are charged, so the driver's limit is the share to the byte."""
    with watched("runc-v2", "--driver-version", "615.10", context_memory="300MiB") as node:
        node.start(container, ["sleep", "100"])
        fill = ["sh", "-c", f"{ROUND_THE_SHIM} alloc --chunk {LIMIT}"]
        held = f'{{"allocated_bytes": {LIMIT}, "exact_bytes": {LIMIT}, "error": "CUDA_ERROR_OUT'
        try:
            until(lambda: node.engine.exec(container, fill).stdout.startswith(held))
            assert node.found() == []
        finally:
            node.engine.delete(container)


def test_figures_of_a_limited_cgroup_are_the_drivers_inside_and_outside(
    watched: Any, container: str
) -> None:
    """The program in it bypasses the shim, so its page says nothing."""
    half = LIMIT // 2
    with watched("runc-v2", "--driver-version", "615.10", context_memory="300MiB") as node:
        hold = f"{ROUND_THE_SHIM} hold --bytes {half} --seconds 100"
        node.start(container, ["sh", "-c", hold])
        asked = ["nvidia-smi", "--query-gpu=memory.used,memory.total", "--format=csv,noheader"]
        try:
            until(lambda: node.shown()["driver_used_bytes"] == half, seconds=FOUND_SECONDS)
            shown = node.shown()
            keys = ("memory_used_bytes", "memory_bytes", "driver_limit_bytes")
            assert [shown[key] for key in keys] == [half, LIMIT, LIMIT]
            assert "the shim and the driver's limit of its cgroup" in shown["isolation_holds"]
            inside = node.engine.exec(container, asked).stdout.split()
            assert inside == [str(half // MIB), "MiB,", str(LIMIT // MIB), "MiB"]
        finally:
            node.engine.delete(container)


def test_nvml_that_hangs_the_watch_hangs_nothing_else(node: AgentNode) -> None:
    node.order("fail", "--call", "nvmlDeviceGetComputeRunningProcesses_v3", "--hang")
    with node.agent() as agent:
        offered(node, CORE)
        time.sleep(3)
        assert len(node.kubelet.healthy(CORE)) == 200
        began = time.monotonic()
        agent.process.send_signal(signal.SIGTERM)
        assert agent.process.wait(30) == 0
        assert time.monotonic() - began < 20
