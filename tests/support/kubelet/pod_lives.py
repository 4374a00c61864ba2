"""Create equal pods by many workers at once, and end each pod in one of several ways.

The kubelet admits a pod, containerd runs its sandbox and container, and the container prints the
GPU and memory that it sees, which must equal its record; then the pod ends. One more thread reads
the whole ledger in a loop, and one kills vcuda's processes: wrapper, hooks, claim server, agent.
"""

from __future__ import annotations

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import grpc  # type: ignore[import-untyped]

from contract.agent.test_device_plugin import CORE, MEMORY
from support.engines.cri import Cri, Pod
from support.kubelet.fake_kubelet import Admitted, Kubelet, Refused
from support.product import MEMORY_UNIT, Product
from support.waiting import until

CORES, UNITS = 7, 2
SEEN = "ls /dev | grep -x 'nvidia[0-9]*'; vcuda-workload info"
STAYS = ["sh", "-c", f"{SEEN}; echo told; exec sleep 3600"]
ATTEMPTS = 10
AGENT = ("vcuda-node-agent", "vcuda_plugin")
AGENT_DIES_SECONDS = 15
# containerd's messages after the runtime or a shim was killed.
AGAIN = ("signal: killed", "exit status 137", "is still running", "connection reset")


class Lives:
    """faults: violations found. deaths: the number of pods by way of ending. retried: creations
    repeated, as the kubelet does, because a process was killed. nodes: device node name by UUID."""

    def __init__(self, cri: Cri, product: Product, kubelet: Kubelet, nodes: dict[str, str]) -> None:
        self.cri, self.product, self.kubelet = cri, product, kubelet
        self.faults: list[str] = []
        self.deaths: Counter[str] = Counter()
        self.retried = self.killed = self.most_at_once = 0
        self.nodes = nodes
        self._dice = random.Random(0)
        self._lock = threading.Lock()
        self._numbers: Iterator[int] = iter(())
        self._over = threading.Event()

    def run(self, pods: int, workers: int, killing: bool = True) -> None:
        """Run this many pods, and return when each has ended."""
        self._numbers = iter(range(pods))
        watchers = [threading.Thread(target=self._watch)]
        if killing:
            watchers.append(threading.Thread(target=self._kill))
        threads = [threading.Thread(target=self._work) for _ in range(workers)]
        for thread in [*watchers, *threads]:
            thread.start()
        for thread in threads:
            thread.join()
        self._over.set()
        for thread in watchers:
            thread.join()

    def leftovers(self) -> list[str]:
        """Records, folders of pages and partial files that are still in the ledger."""
        state = self.product.state_dir(self.cri)
        return [*os.listdir(state + "/allocations"), *os.listdir(state + "/containers")]

    def _work(self) -> None:
        while not self.faults:
            with self._lock:
                number = next(self._numbers, None)
                death = self._dice.choice(list(DEATHS))
            if number is None:
                return
            try:
                self._live(f"pod{number}", death)
            except Exception as error:
                self.faults.append(f"pod{number}, {death}: {error!r}")

    def _live(self, name: str, death: str) -> None:
        pod = self._try(lambda: self.cri.run_pod(name))
        admitted = self._admit(pod)
        start = self._starter(pod, admitted.annotations)
        first = self._seen(pod, self._try(start))
        DEATHS[death](self, pod)
        if death == "restarted":
            second = self._seen(pod, self._try(start))
            if first != second:
                self.faults.append(f"{name} had {first}, and {second} when it came back")
        if death in BY_FORCE:
            self._try(lambda: self.cri.remove_sandbox(pod))
        else:
            self.cri.remove_pod(pod)
        with self._lock:
            self.kubelet.forget(pod.uid)
            self.deaths[death] += 1

    def _admit(self, pod: Pod) -> Admitted:
        """Admit a pod; try again, as its owner does, while no agent runs."""
        deadline = time.monotonic() + 60
        while True:
            try:
                with self._lock:  # the kubelet's admission is one loop
                    return self.kubelet.admit(pod.uid, "main", {CORE: CORES, MEMORY: UNITS})
            except (Refused, KeyError):
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.2)

    def _starter(self, pod: Pod, annotations: dict[str, str]) -> Callable[[], str]:
        def start() -> str:
            return self.cri.start_container(pod, STAYS, annotations=annotations)

        return start

    def _try(self, step: Callable[[], Any]) -> Any:
        """Repeat a step that failed because a process was killed, as the kubelet does."""
        for attempt in range(ATTEMPTS):
            try:
                return step()
            except grpc.RpcError as error:
                if attempt + 1 == ATTEMPTS or not any(
                    words in str(error.details()).lower() for words in AGAIN
                ):
                    raise
                with self._lock:
                    self.retried += 1
                time.sleep(0.2)
        return None

    def _seen(self, pod: Pod, container_id: str) -> tuple[str, int]:
        """The GPU and the memory that the container sees; compared with its record."""
        until(lambda: "told" in self.cri.output(pod)[0], f"what {pod.name} sees", 60)
        node, lines, _ = self.cri.output(pod)[0].splitlines()
        path = f"{self.product.state_dir(self.cri)}/allocations/pod-{pod.uid}.main.json"
        with open(path, encoding="utf-8") as file:
            record = json.load(file)
        (share,) = record["shares"]
        (gpu,) = json.loads(lines)["devices"]
        right = (share["uuid"], share["memory_bytes"], UNITS * MEMORY_UNIT, container_id)
        seen = (gpu["uuid"], gpu["total_bytes"], gpu["total_bytes"], record["container_id"])
        if right != seen or node != self.nodes[gpu["uuid"]]:
            self.faults.append(f"{pod.name} sees {node} {seen}, its record has {right}")
        return gpu["uuid"], gpu["total_bytes"]

    def _watch(self) -> None:
        """Check in a loop that no share is given twice, whichever process dies."""
        while not self._over.wait(0.05):
            held: Counter[str] = Counter()
            try:
                for record in self.product.allocations(self.cri):
                    for share in record["shares"]:
                        held[share["uuid"]] += share["core_percent"]
            except FileNotFoundError:
                continue  # a record was removed between listing and reading
            self.most_at_once = max(self.most_at_once, sum(held.values()) // CORES)
            over = {uuid: core for uuid, core in held.items() if core > 100}
            if over:
                self.faults.append(f"promised: {over}")

    def _kill(self) -> None:
        """Kill wrappers and hooks often, the agent or a child of it every AGENT_DIES_SECONDS.

        The shell that restarts the agent, in place of systemd, is not killed.
        """
        dice, agent_at = random.Random(1), 0.0
        while not self._over.wait(0.1):
            ours = [(pid, line) for pid, line in processes() if self.product.prefix in line]
            ours = [(pid, line) for pid, line in ours if not line.startswith("sh -c while")]
            agents = [pid for pid, line in ours if any(word in line for word in AGENT)]
            others = [pid for pid, _ in ours if pid not in agents]
            # On a busy machine an agent killed before it has registered would never be ready.
            if agents and time.monotonic() > agent_at and self.kubelet.healthy(CORE):
                agent_at = time.monotonic() + AGENT_DIES_SECONDS
                self.killed += kill(dice.choice(agents))
            elif others:
                self.killed += kill(dice.choice(others))

    def _killed(self, pod: Pod) -> None:
        for pid in in_cgroup(pod.containers["main"]):
            kill(pid)
        self.cri.wait_for(pod.containers["main"])

    def _restarted(self, pod: Pod) -> None:
        self._killed(pod)
        self.cri.remove_container(pod.containers["main"])

    def _shim_killed(self, pod: Pod) -> None:
        for pid, line in processes():
            if "containerd-shim" in line and pod.sandbox_id in line:
                kill(pid)


DEATHS: dict[str, Callable[[Lives, Pod], None]] = {
    "ended": lambda lives, pod: None,
    "killed": Lives._killed,
    "restarted": Lives._restarted,
    "its shim killed": Lives._shim_killed,
    "removed by force": lambda lives, pod: None,
}
BY_FORCE = ("its shim killed", "removed by force")


def processes() -> Iterator[tuple[int, str]]:
    """Pid and command line, joined by spaces, of each process of the machine."""
    for name in os.listdir("/proc"):
        if name.isdigit():
            with contextlib.suppress(OSError), open(f"/proc/{name}/cmdline", "rb") as words:
                yield int(name), words.read().replace(b"\0", b" ").decode(errors="replace")


def in_cgroup(container_id: str) -> list[int]:
    """Process ids in the cgroup that a container's id names."""
    found = []
    for pid, _ in processes():
        with contextlib.suppress(OSError), open(f"/proc/{pid}/cgroup") as groups:
            if container_id in groups.read():
                found.append(pid)
    return found


def kill(pid: int) -> bool:
    with contextlib.suppress(ProcessLookupError):
        os.kill(pid, signal.SIGKILL)
        return True
    return False
