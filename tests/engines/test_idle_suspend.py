"""Containers that give the GPU's memory back by themselves, under a real runtime and the agent."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest

from support.engines.base import Engine
from support.fake_kubelet import until
from support.node_agent import only_child
from support.product import MIB, Product, asking

NOTEBOOK = ["vcuda-workload", "notebook", f"--bytes={512 * MIB}"]


# Of each engine one kind; the others differ in cgroups only.
KINDS = ["runc-v2", "crun-v2", "docker", "containerd-ctr-v2", "containerd-cri", "podman-v2"]


@contextmanager
def agent(engine: Engine, product: Product) -> Iterator[None]:
    kubelet = engine.host.path("kubelet")
    os.makedirs(kubelet, exist_ok=True)
    program = os.path.join(product.prefix, "bin/vcuda-node-agent")
    words = [program, "--config", product.config, "--kubelet-dir", kubelet]
    inside = engine.host.daemon(words, "agent.log")
    try:
        yield
    finally:
        os.kill(only_child(inside.pid), signal.SIGTERM)
        inside.wait(30)


def state(engine: Engine, product: Product, id: str = "") -> tuple[str, str]:
    """The step of a container's record, and its reason. id: "": the only one's."""
    records = product.allocations(engine)
    (record,) = (one for one in records if id in ("", one["container_id"]))
    held = record.get("suspension") or {}
    return str(held.get("step", "running")), str(held.get("by", ""))


def used(engine: Engine, product: Product) -> int:
    """MiB of the GPUs in use, as the driver counts them."""
    return sum(_queried(engine, product, "memory.used"))


def cells(engine: Engine, id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in engine.logs(id).splitlines()]


@pytest.mark.parametrize("kind", KINDS)
def test_idle_container_leaves_the_gpu_and_its_next_call_brings_it_back(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine), agent(engine, product):
        asked = asking(engine, core=50, memory_bytes=1024 * MIB, idle_suspend="2s")
        program = [*NOTEBOOK, "--seconds=600", "--every-ms=6000"]
        try:
            started = engine.start(container, program, **asked)
            assert started.rc == 0, started.stderr
            until(lambda: len(cells(engine, container)) == 1)
            before = used(engine, product)
            assert before >= 512
            until(lambda: state(engine, product) == ("suspended", "idle"))
            assert used(engine, product) <= before - 512
            until(lambda: kinds(engine, product).count("resumed") >= 2)
            until(lambda: len(cells(engine, container)) >= 3)
            assert all(cell["intact"] for cell in cells(engine, container))
        finally:
            engine.delete(container)


def test_containers_with_more_memory_than_the_gpu_take_turns(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    """Each works through its cells with its data intact; the GPU never holds both."""
    engine = start_engine("runc-v2")
    whole = _queried(engine, product, "memory.total")[0]
    names = [f"{container}-{at}" for at in range(2)]
    settings = {"memory_overcommit": "2", "oversubscribe": "rotate"}
    with product.on(engine, **settings), agent(engine, product):
        asked = asking(engine, core=40, memory_bytes=whole * 7 // 10 * MIB, gpu="0")
        program = [*NOTEBOOK, "--seconds=12", "--every-ms=3000"]
        try:
            for name in names:
                started = engine.start(name, program, **asked)
                assert started.rc == 0, started.stderr
            states = [state(engine, product, name)[0] for name in names]
            for name in names:
                assert engine.wait(name) == 0, engine.logs(name)
            found = [cells(engine, name) for name in names]
        finally:
            for name in names:
                engine.delete(name)
    assert states[0] == "running"
    for each in found:
        assert len(each) >= 2
        assert all(cell["intact"] for cell in each)
    assert {"suspended", "resumed"} <= set(kinds(engine, product))


def _queried(engine: Engine, product: Product, field: str) -> list[int]:
    root = product.driver_root
    words = [f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    libraries = f"LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu"
    program = ["env", f"SOFTGPU_ROOT={root}", libraries, f"{root}/usr/bin/nvidia-smi"]
    return [int(line) for line in engine.host.check([*program, *words]).splitlines()]


def kinds(engine: Engine, product: Product) -> list[str]:
    """The kinds of the node's events, oldest first."""
    program = [product.prefix + "/bin/vcuda", "--config", product.config, "events", "--json"]
    return [event["kind"] for event in json.loads(engine.host.check(program))]
