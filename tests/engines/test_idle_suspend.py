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


def state(engine: Engine, product: Product, id: str) -> tuple[str, str]:
    """The container's status as `vcuda ps` shows it, and the step of its record."""
    (record,) = (one for one in product.allocations(engine) if one["container_id"] == id)
    held = record.get("suspension") or {}
    return str(held.get("step", "running")), str(held.get("by", ""))


def used(engine: Engine, product: Product) -> int:
    """MiB of the first GPU in use, as the driver counts them."""
    return _queried(engine, product, "memory.used")


def cells(engine: Engine, id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in engine.logs(id).splitlines()]


@pytest.mark.parametrize("kind", ["runc-v2", "crun-v2"])
def test_idle_container_leaves_the_gpu_and_its_next_call_brings_it_back(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine), agent(engine, product):
        asked = asking(engine, core=50, memory_bytes=1024 * MIB, gpu="0", idle_suspend="2s")
        program = [*NOTEBOOK, "--seconds=14", "--every-ms=6000"]
        try:
            started = engine.start(container, program, **asked)
            assert started.rc == 0, started.stderr
            until(lambda: len(cells(engine, container)) == 1)
            before = used(engine, product)
            assert before >= 512
            until(lambda: state(engine, product, container) == ("suspended", "idle"))
            assert used(engine, product) <= before - 512
            assert engine.wait(container) == 0, engine.logs(container)
            found = cells(engine, container)
        finally:
            engine.delete(container)
    assert [cell["intact"] for cell in found] == [True] * 3
    kinds = [event["kind"] for event in _events(engine, product, container)]
    assert kinds.count("suspended") == kinds.count("resumed") >= 2


def test_containers_with_more_memory_than_the_gpu_take_turns(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    """Each works through its cells with its data intact; the GPU never holds both."""
    engine = start_engine("runc-v2")
    whole = _queried(engine, product, "memory.total")
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
    turns = [event for name in names for event in _events(engine, product, name)]
    assert {"suspended", "resumed"} <= {event["kind"] for event in turns}


def _queried(engine: Engine, product: Product, field: str) -> int:
    root = product.driver_root
    words = ["-i", "0", f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    libraries = f"LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu"
    program = ["env", f"SOFTGPU_ROOT={root}", libraries, f"{root}/usr/bin/nvidia-smi"]
    return int(engine.host.check([*program, *words]))


def _events(engine: Engine, product: Product, id: str) -> list[dict[str, Any]]:
    program = [product.prefix + "/bin/vcuda", "--config", product.config]
    found: list[dict[str, Any]] = json.loads(engine.host.check([*program, "events", id, "--json"]))
    return found
