"""`vcuda drain`, `undrain` and `rebalance` with containers of real engines on two GPUs."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engines.starts.test_container_names import vcuda
from engines.suspend.test_suspend import HELD, WORKING, start, succeed, works
from support.engines.base import Engine
from support.host.terminal import Terminal
from support.product import Product, asking
from support.suspend.notebook import cells, queried, state
from support.waiting import until

GIB = 1 << 30


def gpus_of(engine: Engine, product: Product) -> dict[str, str]:
    """The index of each container's GPU, by the container's id."""
    entries = json.loads(vcuda(engine, product, "ps", "--json").stdout)
    return {entry["container_id"]: entry["gpu_name"] for entry in entries}


def answered(engine: Engine, product: Product, *words: str) -> Any:
    return json.loads(vcuda(engine, product, *words, "--json").stdout)


@pytest.mark.parametrize("kind", ["runc-v2", "docker"])
def test_drained_gpu_is_left_by_moves_then_suspends_and_gets_no_containers(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    large, small, late = container, f"{container}-2", f"{container}-3"
    with product.on(engine):
        try:
            start(engine, large, WORKING, gpu="0")
            start(engine, small, WORKING, gpu="0", memory_bytes=8 * GIB)
            other = asking(engine, core=50, gpu="1", memory_bytes=8 * GIB)
            assert engine.start(late, ["sleep", "600"], **other).rc == 0
            until(lambda: bool(cells(engine, large)) and bool(cells(engine, small)))
            before = answered(engine, product, "ps")
            planned = succeed(engine, product, "drain", "0", "--dry-run")
            assert "move" in planned and "suspend" in planned and "512 MiB" in planned
            asked = vcuda(engine, product, "drain", "0")
            assert (asked.rc, "add --yes" in asked.stderr) == (1, True)
            assert [one["gpu_name"] for one in answered(engine, product, "ps")] == [
                one["gpu_name"] for one in before
            ]
            done = succeed(engine, product, "drain", "0", "--yes")
            assert "GPU 0 is drained" in done
            assert queried(engine, product, "memory.used")[0] == 0
            records = product.allocations(engine)
            assert sorted((one.get("suspension") or {}).get("by", "") for one in records) == [
                "", "", "drain",
            ]  # fmt: skip
            (entry, _) = answered(engine, product, "gpus")
            assert entry["unhealthy"] == "drained"
            again = f"{container}-4"
            refused = engine.run(again, ["true"], **asking(engine, core=10, gpu="0"))
            assert refused.rc and "is drained; name another GPU" in refused.stderr
            waits = vcuda(engine, product, "resume", *_asleep(records), "--timeout", "0")
            assert (waits.rc, "is drained" in waits.stderr) == (1, True)
            assert "is in use again" in succeed(engine, product, "undrain", "0")
            assert [state(engine, product, one["container_id"])[0] for one in records] == [
                "running",
            ] * 3  # fmt: skip
            works(engine, large)
            works(engine, small)
            assert sum(queried(engine, product, "memory.used")) == 2 * HELD
        finally:
            for name in (large, small, late):
                engine.delete(name)


def _asleep(records: list[dict[str, Any]]) -> list[str]:
    return [one["container_id"] for one in records if one.get("suspension")]


def test_room_is_made_for_a_request_by_one_move(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    engine = start_engine("runc-v2")
    words = ("rebalance", "--core", "60", "--memory", "9GiB")
    with product.on(engine):
        try:
            assert "it fits" in succeed(engine, product, *words)
            for at, (gpu, core) in enumerate((("0", 40), ("1", 50))):
                asked = asking(engine, core=core, gpu=gpu, memory_bytes=4 * GIB)
                started = engine.start(f"{container}-{at}", WORKING, **asked)
                assert started.rc == 0, started.stderr
            until(lambda: all(cells(engine, f"{container}-{at}") for at in (0, 1)))
            assert "it fits" in succeed(engine, product, *words)
            more = asking(engine, core=10, gpu="0", memory_bytes=6 * GIB)
            assert engine.start(f"{container}-2", ["sleep", "600"], **more).rc == 0
            where = gpus_of(engine, product)
            plan = answered(engine, product, *words)
            assert [(m["id"], m["bytes"]) for m in plan["moves"]] == [(f"{container}-2", 0)]
            assert gpus_of(engine, product) == where
            program = [f"{product.prefix}/bin/vcuda", "--config", product.config, *words]
            terminal = Terminal(["/usr/bin/env", *engine.host.inside(program)], width=120)
            terminal.until(lambda lines: any("Move them? [y/N]" in line for line in lines))
            terminal.press("y\n")
            assert terminal.end() == 0
            assert b"it fits now" in terminal.output
            terminal.close()
            assert gpus_of(engine, product)[f"{container}-2"] == "1"
            fits = engine.run(
                f"{container}-3", ["true"], **asking(engine, core=60, memory_bytes=9 * GIB)
            )
            assert fits.rc == 0, fits.stderr
            never = vcuda(engine, product, "rebalance", "--core", "200", "--yes")
            assert (never.rc, "no moves make room" in never.stderr) == (1, True)
        finally:
            for at in range(3):
                engine.delete(f"{container}-{at}")
