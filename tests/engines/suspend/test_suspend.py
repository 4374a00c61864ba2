"""`vcuda suspend` and `vcuda resume` of containers of each engine, and what engines do to them."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import Callable
from typing import Any

import pytest

from engines.starts.test_container_names import vcuda
from support.engines.base import Engine, Result
from support.engines.cri import CONTAINER, Cri
from support.engines.docker import Docker
from support.product import MIB, Product, asking
from support.suspend.notebook import NOTEBOOK, cells, state, used
from support.waiting import until

KINDS = [
    "runc-v1", "docker", "docker-v2", "containerd-ctr", "containerd-cri", "containerd-cri-v2",
    "crio", "podman", "podman-v2",
]  # fmt: skip
HELD = 512  # MiB that a notebook holds
SOON = 0.5  # seconds in which a notebook that is not suspended computes several cells
WORKING = [*NOTEBOOK, "--seconds=600", "--every-ms=50"]
# Four processes with memory, and short ones that start all the time, each a new one.
MANY = """
for at in 1 2 3 4; do
  vcuda-workload notebook --bytes=64MiB --seconds=600 --every-ms=50 > /tmp/$at &
done
while :; do vcuda-workload info > /dev/null & sleep 0.02; done
"""

LATE = ["vcuda-workload", "alloc", "--chunk=64MiB"]


def start(engine: Engine, name: str, program: list[str], **more: Any) -> None:
    started = engine.start(name, program, **asking(engine, core=50, **more))
    assert started.rc == 0, started.stderr


def succeed(engine: Engine, product: Product, *words: str) -> str:
    done = vcuda(engine, product, *words)
    assert done.rc == 0, done.stderr
    return done.stdout


def works(engine: Engine, name: str) -> None:
    """Wait until a notebook has computed another cell; all were intact."""
    before = len(cells(engine, name))
    until(lambda: len(cells(engine, name)) > before)
    assert all(cell["intact"] for cell in cells(engine, name))


@pytest.mark.parametrize("kind", KINDS)
def test_container_of_each_engine_leaves_the_gpu_and_comes_back_by_name(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    name = f"default/{container}/{CONTAINER}" if isinstance(engine, Cri) else container
    with product.on(engine):
        try:
            start(engine, container, WORKING)
            until(lambda: bool(cells(engine, container)))
            assert used(engine, product) == HELD
            off = succeed(engine, product, "suspend", name)
            assert off.startswith(f"{name} is suspended: 512 MiB off")
            assert (state(engine, product), used(engine, product)) == (("suspended", "order"), 0)
            assert f"{name} is suspended already\n" == succeed(engine, product, "suspend", name)
            before = len(cells(engine, container))
            time.sleep(SOON)
            assert len(cells(engine, container)) == before
            back = succeed(engine, product, "resume", name)
            assert back.startswith(f"{name} is running: 512 MiB back")
            assert (state(engine, product), used(engine, product)) == (("running", ""), HELD)
            works(engine, container)
            succeed(engine, product, "suspend", name)
        finally:
            engine.delete(container)
        succeed(engine, product, "release", "--all-dead")  # a pod's share waits for its sweep
        assert product.allocations(engine) == []
        assert used(engine, product) == 0


@pytest.mark.parametrize("kind", ["docker", "podman-v2"])
def test_all_processes_leave_also_those_that_start_meanwhile(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    answers: list[Result] = []
    with product.on(engine):
        try:
            start(engine, container, ["sh", "-c", MANY])
            until(lambda: used(engine, product) == 256)
            for _ in range(3):
                assert "256 MiB off" in succeed(engine, product, "suspend", container)
                assert (state(engine, product), used(engine, product))[0][0] == "suspended"
                late = threading.Thread(target=lambda: answers.append(engine.exec(container, LATE)))
                late.start()
                for _ in range(5):
                    time.sleep(SOON / 5)
                    assert used(engine, product) == 0
                assert late.is_alive()
                assert "256 MiB back" in succeed(engine, product, "resume", container)
                late.join(60)
                assert not late.is_alive()
            finished = engine.exec(container, ["sh", "-c", "cat /tmp/1 /tmp/2 /tmp/3 /tmp/4"])
        finally:
            engine.delete(container)
    assert [answer.rc for answer in answers] == [0] * 3, answers
    found = [json.loads(line) for line in finished.stdout.splitlines()]
    assert {cell["intact"] for cell in found} == {True}


@pytest.mark.parametrize("kind", ["runc-v1", "docker-v2"])
def test_container_that_checkpoints_its_own_process_gets_it_back_so(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)

    def take(*steps: str) -> str:
        return engine.exec(container, ["vcuda-workload", "checkpoint", "1", *steps]).stdout

    with product.on(engine):
        try:
            start(engine, container, WORKING, memory_bytes=1024 * MIB)
            until(lambda: bool(cells(engine, container)))
            assert used(engine, product) == HELD
            assert "CUDA_SUCCESS" in take("lock", "checkpoint")
            assert used(engine, product) == 0
            shown = json.loads(succeed(engine, product, "ps", "--json"))
            off = [(each["memory_used_bytes"], each["memory_off_bytes"]) for each in shown]
            assert off == [(0, HELD * MIB)]
            other = engine.exec(container, ["vcuda-workload", "alloc", "--chunk=512MiB"])
            assert json.loads(other.stdout)["allocated_bytes"] == 1024 * MIB
            succeed(engine, product, "suspend", container)
            before = len(cells(engine, container))
            succeed(engine, product, "resume", container)
            time.sleep(SOON)
            assert (used(engine, product), len(cells(engine, container))) == (0, before)
            assert "CUDA_SUCCESS" in take("restore", "unlock")
            assert used(engine, product) == HELD
            works(engine, container)
        finally:
            engine.delete(container)


@pytest.fixture
def docker(start_engine: Callable[[str], Engine]) -> Docker:
    found = start_engine("docker")
    assert isinstance(found, Docker)
    return found


def test_suspended_container_that_docker_restarts_or_stops_leaves_nothing(
    docker: Docker, product: Product, container: str
) -> None:
    with product.on(docker):
        try:
            start(docker, container, WORKING)
            until(lambda: bool(cells(docker, container)))
            (before,) = product.allocations(docker)
            succeed(docker, product, "suspend", container)
            assert docker.restart(container).rc == 0
            assert state(docker, product) == ("running", "")
            works(docker, container)
            (after,) = product.allocations(docker)
            assert (after["id"], after["shares"]) == (before["id"], before["shares"])
            for end in (["stop", "--time=0"], ["kill"]):
                succeed(docker, product, "suspend", container)
                assert docker.docker(*end, container).rc == 0
                docker.wait(container)
                until(lambda: product.allocations(docker) == [])
                assert used(docker, product) == 0
                assert docker.docker("start", container).rc == 0
                works(docker, container)
        finally:
            docker.delete(container)


def test_suspended_container_without_room_is_refused_its_restart(
    docker: Docker, product: Product, container: str
) -> None:
    other = f"{container}-other"
    with product.on(docker):
        try:
            start(docker, container, WORKING, gpu="0", memory_bytes=9 * 1024 * MIB)
            until(lambda: bool(cells(docker, container)))
            succeed(docker, product, "suspend", container)
            start(docker, other, ["sleep", "600"], gpu="0", memory_bytes=9 * 1024 * MIB)
            refused = docker.restart(container)
            assert refused.rc != 0
            assert "ask for less, or free a share" in refused.stderr
            (left,) = product.allocations(docker)
            assert left["container_id"] == docker.docker("inspect", "-f{{.Id}}", other).stdout[:-1]
            docker.delete(other)
            assert docker.docker("start", container).rc == 0
            works(docker, container)
        finally:
            docker.delete(container)
            docker.delete(other)


def test_paused_container_is_refused_and_stays_as_it_was(
    docker: Docker, product: Product, container: str
) -> None:
    with product.on(docker):
        try:
            start(docker, container, WORKING)
            until(lambda: bool(cells(docker, container)))
            assert docker.docker("pause", container).rc == 0
            refused = vcuda(docker, product, "suspend", container)
            assert (refused.rc, "is paused; unpause it first" in refused.stderr) == (1, True)
            assert state(docker, product) == ("running", "")
            assert docker.docker("unpause", container).rc == 0
            works(docker, container)
            succeed(docker, product, "suspend", container)
            assert docker.docker("pause", container).rc == 0
            refused = vcuda(docker, product, "resume", container)
            assert (refused.rc, "is paused; unpause it first" in refused.stderr) == (1, True)
            assert state(docker, product) == ("suspended", "order")
            assert "is suspended already" in succeed(docker, product, "suspend", container)
            why = succeed(docker, product, "why", container)
            assert "it is paused" in why and "it is suspended by order" in why
            assert docker.docker("unpause", container).rc == 0
            assert used(docker, product) == 0
            succeed(docker, product, "resume", container)
            works(docker, container)
        finally:
            docker.delete(container)
