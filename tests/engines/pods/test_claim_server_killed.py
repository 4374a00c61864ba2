"""SIGKILL of `vcuda serve`: containers still start, each with one share."""

from __future__ import annotations

import json
import os
import random
import signal
import threading
import time
from collections.abc import Callable, Iterator

import pytest

from support.agent.claim_server import ClaimServer
from support.engines.base import Engine
from support.engines.low_level import LowLevel
from support.host import cgroups
from support.product import MIB, Product, asking
from support.waiting import until
from vcuda_oci.ledger import events
from vcuda_oci.model.names import GUEST_LIMITS
from vcuda_oci.start import claim_socket

STARTERS, EACH = 3, 6
SERVED = ["runc-v1" if cgroups.is_v1() else "runc-v2", "crun-v2"]


class Served:
    """An engine behind the wrapper, with the claim server open."""

    def __init__(self, engine: LowLevel, product: Product) -> None:
        self.engine, self.product = engine, product
        self.state_dir = product.state_dir(engine)
        self.group = engine.host.cgroup_parent + "-server"
        self.server = ClaimServer(engine.host, product, self.state_dir)

    def start(self, name: str) -> str:
        """The runtime's error; "" if the container started."""
        asked = asking(self.engine, core=1, memory_bytes=64 * MIB)
        started = self.engine.start(name, ["sleep", "1000"], **asked)
        return "" if started.rc == 0 else started.stderr or f"exit {started.rc}"

    def limits(self, name: str) -> list[str]:
        """What a container's bundle has mounted as its limits."""
        with open(self.engine.bundle(name) + "/config.json") as file:
            mounts = json.load(file)["mounts"]
        return [mount["source"] for mount in mounts if mount["destination"] == GUEST_LIMITS]

    def held(self) -> dict[str, tuple[int, int]]:
        """Core percent and bytes by allocation."""
        return {
            record["id"]: (share["core_percent"], share["memory_bytes"])
            for record in self.product.allocations(self.engine)
            for share in record["shares"]
        }


@pytest.fixture(params=SERVED)
def served(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[Served]:
    engine = start_engine(request.param)
    assert isinstance(engine, LowLevel)
    with product.on(engine):
        served = Served(engine, product)
        try:
            yield served
        finally:
            kill(served.server.pid, signal.SIGTERM)
            served.server.nsenter.wait(30)
            cgroups.remove(served.group)
    assert product.allocations(engine) == []
    left = set(os.listdir(served.state_dir)) - {
        claim_socket.NAME,
        events.NAME,
        "turns",
        "turns.lock",
    }  # the claim server of one that was killed
    assert sorted(left) == [
        "allocations",
        "containers",
        "ended",
        "host.json",
        "lock",
    ]
    assert os.listdir(served.state_dir + "/containers") == []


def kill(pid: int, number: int = signal.SIGKILL) -> bool:
    """Whether there was still such a process."""
    try:
        os.kill(pid, number)
    except ProcessLookupError:
        return False
    return True


def kill_at_random(served: Served, chance: random.Random, until: threading.Event) -> list[str]:
    """Kill workers and whole claim servers one after another; start each ended server again."""
    killed = []
    while not until.is_set() or "server" not in killed:
        time.sleep(chance.uniform(0, 0.05))
        workers = served.server.workers()
        if chance.random() < 0.8:
            killed += ["worker"] if workers and kill(chance.choice(workers)) else []
            continue
        served.server.kill()
        if chance.random() < 0.5:
            for pid in workers:
                kill(pid)
        killed.append("server")
        served.server = ClaimServer(served.engine.host, served.product, served.state_dir)
    return killed


def test_while_claim_servers_are_killed_at_random_every_container_starts_with_one_share(
    served: Served, container: str
) -> None:
    chance, done = random.Random(container), threading.Event()
    names = [[f"{container}-{s}-{n}" for n in range(EACH)] for s in range(STARTERS)]
    complaints: list[str] = []
    starters = [
        threading.Thread(target=lambda mine=mine: complaints.extend(map(served.start, mine)))
        for mine in names
    ]
    killed: list[str] = []
    killer = threading.Thread(target=lambda: killed.extend(kill_at_random(served, chance, done)))
    every = [name for mine in names for name in mine]
    try:
        for thread in (killer, *starters):
            thread.start()
        for thread in starters:
            thread.join()
        done.set()
        killer.join()
        assert complaints == [""] * len(every)
        assert {"worker", "server"} <= set(killed), "the killer died"
        assert served.held() == dict.fromkeys(every, (1, 64 * MIB))
        assert {name: served.limits(name) for name in every} == {
            name: [f"{served.state_dir}/containers/{name}/limits"] for name in every
        }
    finally:
        for name in every:
            served.engine.delete(name)


def limited(served: Served, controller: str, file: dict[str, str], limit: int) -> str:
    """The claim server's processes in a cgroup of their own; the path of its limit, now `limit`.

    file: the limit's by version of cgroups.
    """
    root = f"{cgroups.ROOT}/{controller}" if cgroups.is_v1() else cgroups.ROOT
    if not cgroups.is_v1():
        write(root + "/cgroup.subtree_control", f"+{controller}")
    os.makedirs(root + served.group, exist_ok=True)
    for pid in (served.server.pid, *served.server.workers()):
        write(f"{root}{served.group}/cgroup.procs", str(pid))
    path = f"{root}{served.group}/{file['v1' if cgroups.is_v1() else 'v2']}"
    write(path, str(limit))
    return path


def write(path: str, text: str) -> None:
    with open(path, "w") as file:
        file.write(text)


@pytest.mark.parametrize("served", SERVED[:1], indirect=True)
def test_claim_server_that_cannot_fork_uses_the_remaining_workers(
    served: Served, container: str
) -> None:
    before = served.server.workers()
    limit = limited(served, "pids", {"v1": "pids.max", "v2": "pids.max"}, 3)
    try:
        for pid in before[:2]:
            os.kill(pid, signal.SIGKILL)
        until(lambda: served.server.workers() == before[2:], "the end of two workers")
        assert served.start(container) == ""
        assert served.held() == {container: (1, 64 * MIB)}
        write(limit, "max")
        until(lambda: len(served.server.workers()) == claim_socket.WORKERS, "new workers")
        assert set(before[2:]) < set(served.server.workers())
    finally:
        served.engine.delete(container)


@pytest.mark.parametrize("served", SERVED[:1], indirect=True)
def test_a_claim_server_out_of_memory_costs_no_container_its_start(
    served: Served, container: str
) -> None:
    before = [served.server.pid, *served.server.workers()]
    limited(served, "memory", {"v1": "memory.limit_in_bytes", "v2": "memory.max"}, 64 << 10)
    names = [f"{container}-{number}" for number in range(claim_socket.WORKERS)]
    try:
        assert [served.start(name) for name in names] == [""] * len(names)
        assert served.held() == dict.fromkeys(names, (1, 64 * MIB))
        alive = [pid for pid in before if os.path.exists(f"/proc/{pid}")]
        assert alive != before, "the limit has killed no process"
    finally:
        for name in names:
            served.engine.delete(name)
