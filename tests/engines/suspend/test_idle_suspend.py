"""Containers that give the GPU's memory back by themselves, under a real runtime and the agent."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import pytest

from support.engines.base import Engine
from support.product import MIB, Product, asking
from support.suspend.notebook import NOTEBOOK, agent, cells, kinds, queried, state, used
from support.waiting import until

# A pod, which a kubelet may restart, and a container that is none. test_suspend.py suspends one of
# each engine; the agent does the same, and finds processes and work as it does for every figure.
KINDS = ["docker", "containerd-cri", "crio-v2"]


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
    whole = queried(engine, product, "memory.total")[0]
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


def test_call_gets_its_gpu_back_from_a_container_that_has_its_room(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    """The other one never stops working; `vcuda why` says the longest wait, which holds."""
    engine = start_engine("runc-v2")
    whole = queried(engine, product, "memory.total")[0]
    most: dict[str, Any] = {"core": 60, "memory_bytes": whole * 7 // 10 * MIB, "gpu": "0"}
    other = f"{container}-other"
    with product.on(engine, rotation_quantum="2s"), agent(engine, product):
        try:
            sleeper = [*NOTEBOOK, "--seconds=600", "--every-ms=15000"]
            started = engine.start(container, sleeper, **asking(engine, **most, idle_suspend="2s"))
            assert started.rc == 0, started.stderr
            until(lambda: state(engine, product, container) == ("suspended", "idle"))
            first = len(cells(engine, container))
            busy = [*NOTEBOOK, "--seconds=600", "--every-ms=1"]
            started = engine.start(other, busy, **asking(engine, **most))
            assert started.rc == 0, started.stderr
            until(lambda: len(cells(engine, other)) > 0)
            (stated,) = re.findall(r"within (\d+) s", why(engine, product, container))
            until(lambda: len(cells(engine, container)) > first)
            found = cells(engine, container)
            assert state(engine, product, other)[0] in ("suspended", "waiting")
            # Asleep again, it leaves the room to the other one.
            done = len(cells(engine, other))
            until(lambda: len(cells(engine, other)) > done)
            assert all(cell["intact"] for cell in [*found, *cells(engine, other)])
        finally:
            for name in (container, other):
                engine.delete(name)
    assert all(cell["first_call_ms"] < 1000 * int(stated) for cell in found)


def why(engine: Engine, product: Product, name: str) -> str:
    program = [product.prefix + "/bin/vcuda", "--config", product.config, "why", name]
    return engine.host.check(program)
