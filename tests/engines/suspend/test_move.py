"""`vcuda move` and `vcuda resume --gpu` of containers of real engines, from one GPU to another."""

from __future__ import annotations

import json
import os
import signal
import time
from collections.abc import Callable
from typing import Any

import pytest

from engines.starts.test_container_names import vcuda
from engines.suspend.test_suspend import HELD, SOON, WORKING, start, succeed, works
from support.agent.node_agent import only_child
from support.engines.base import Engine
from support.product import Product
from support.suspend.notebook import cells, queried, state
from support.waiting import until

KINDS = ["runc-v2", "docker"]


def share(engine: Engine, product: Product) -> dict[str, Any]:
    ((found,),) = (record["shares"] for record in product.allocations(engine))
    assert isinstance(found, dict)
    return found


def seen_inside(engine: Engine, name: str) -> str:
    """The UUIDs that a new program in the container finds by NVML."""
    listed = engine.exec(name, ["nvidia-smi", "--query-gpu=uuid", "--format=csv,noheader"])
    assert listed.rc == 0, listed.stderr
    return listed.stdout.strip()


@pytest.mark.parametrize("kind", KINDS)
def test_container_moves_to_another_gpu_and_back_with_its_data(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    with product.on(engine):
        try:
            start(engine, container, WORKING, gpu="0")
            until(lambda: bool(cells(engine, container)))
            first = share(engine, product)
            assert queried(engine, product, "memory.used") == [HELD, 0]
            assert "is moved: 512 MiB" in succeed(engine, product, "move", container, "--gpu", "1")
            assert queried(engine, product, "memory.used") == [0, HELD]
            there = share(engine, product)
            assert there["uuid"] != first["uuid"]
            assert {**there, "uuid": first["uuid"]} == first
            assert state(engine, product) == ("running", "")
            assert seen_inside(engine, container) == there["uuid"]
            works(engine, container)
            assert "is there already" in succeed(engine, product, "move", container, "--gpu", "1")
            succeed(engine, product, "suspend", container)
            before = len(cells(engine, container))
            time.sleep(SOON)
            assert len(cells(engine, container)) == before
            succeed(engine, product, "resume", container, "--gpu", first["uuid"])
            assert queried(engine, product, "memory.used") == [HELD, 0]
            assert (share(engine, product), seen_inside(engine, container)) == (
                first,
                first["uuid"],
            )
            works(engine, container)
        finally:
            engine.delete(container)


# Opens each GPU by its number, whatever nodes there are: the device rules decide.
OPENS = """
for n in 0 1; do
  rm -f /tmp/gpu$n; mknod /tmp/gpu$n c 195 $n; open-node /tmp/gpu$n; ls /dev/nvidia$n 2>/dev/null
done
"""


def test_killed_move_leaves_one_gpu_open_after_the_next_verb(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    """Killed at moments over the whole move, also amid the change of nodes and rules."""
    engine = start_engine("runc-v2")
    killed = 0
    with product.on(engine):
        try:
            start(engine, container, WORKING, gpu="0")
            until(lambda: bool(cells(engine, container)))
            for at in range(12):
                if at >= 4 and killed > 1:
                    break
                to = 1 - own_gpu(engine, product)
                killed += kill_move(engine, product, container, str(to), 0.1 + at % 4 * 0.12)
                # A process that the kill has left behind may still hold the container's lock.
                until(lambda: after_next_verb(engine, product) in ("running", "suspended"))
                if state(engine, product)[0] == "suspended":
                    succeed(engine, product, "resume", container)
                gpu = own_gpu(engine, product)
                opened = engine.exec(container, ["sh", "-c", OPENS]).stdout.splitlines()
                assert f"/tmp/gpu{1 - gpu}: EPERM" in opened
                assert f"/tmp/gpu{gpu}: EPERM" not in opened
                assert [one for one in opened if "/dev/" in one] == [f"/dev/nvidia{gpu}"]
                works(engine, container)
        finally:
            engine.delete(container)
    assert killed > 1


def kill_move(engine: Engine, product: Product, name: str, to: str, seconds: float) -> bool:
    """Kill `vcuda move` after some time, and no other process; False: it had ended."""
    program = [product.prefix + "/bin/vcuda", "--config", product.config]
    inside = engine.host.daemon([*program, "move", name, "--gpu", to], "move.log")
    mover = only_child(inside.pid)
    time.sleep(seconds)
    try:
        os.kill(mover, signal.SIGKILL)
    except ProcessLookupError:
        return False
    return inside.wait(30) != 0


def after_next_verb(engine: Engine, product: Product) -> str:
    """The only container's state after a verb that does not name it."""
    succeed(engine, product, "undrain", "0")
    return state(engine, product)[0]


def own_gpu(engine: Engine, product: Product) -> int:
    (entry,) = json.loads(vcuda(engine, product, "ps", "--json").stdout)
    return int(entry["gpu_name"])


def test_move_without_room_there_leaves_the_container_at_work(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine("runc-v2")
    with product.on(engine):
        try:
            start(engine, container, WORKING, gpu="0")
            start(engine, container + "-2", WORKING, gpu="1")
            start(engine, container + "-3", WORKING, gpu="1")
            until(lambda: bool(cells(engine, container)))
            refused = vcuda(engine, product, "move", container, "--gpu", "1")
            assert refused.rc == 1
            assert "there is no room: 0 %" in refused.stderr
            records = product.allocations(engine)
            assert [record.get("suspension") for record in records] == [None] * 3
            works(engine, container)
        finally:
            for name in (container, container + "-2", container + "-3"):
                engine.delete(name)
