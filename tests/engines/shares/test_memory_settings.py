"""What `memory-overcommit` and `context-memory` give containers, through runc."""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from typing import Any

import pytest

from support.engines.base import Engine
from support.engines.low_level import RuncV1
from support.product import MIB, Product, asking

GIB = 1024 * MIB
SLICE = 12 * GIB
FILL = ["vcuda-workload", "alloc", "--chunk", "1GiB"]


@pytest.fixture
def runc(start_engine: Callable[[str], Engine]) -> Engine:
    engine = start_engine(RuncV1.name)
    engine.use(engine.plain_runtime())
    return engine


def gpus(product: Product, engine: Engine) -> list[dict[str, Any]]:
    program = os.path.join(product.prefix, "bin/vcuda")
    found: list[dict[str, Any]] = json.loads(engine.host.check([program, "gpus", "--json"]))
    return found


def test_two_containers_fill_overcommitted_shares_of_one_gpu(
    runc: Engine, product: Product, container: str
) -> None:
    asked = asking(runc, core=30, memory_bytes=SLICE, gpu="0")
    busy = ["vcuda-workload", "busy", "--allocate", "11GiB", "--seconds=100", "--kernel-us=1000"]
    pair = [f"{container}-{name}" for name in "ab"]
    with product.on(runc, memory_overcommit="1.5"):
        try:
            for name in pair:
                started = runc.start(name, busy, **asked)
                assert started.rc == 0, started.stderr
            shares = [record["shares"] for record in product.allocations(runc)]
            assert [[share["managed"] for share in each] for each in shares] == [[True], [True]]
            for name in pair:
                # The last GiB of the slice, to the byte, while both hold 11 and compute.
                filled = json.loads(runc.exec(name, FILL).stdout)
                assert filled == {
                    "allocated_bytes": GIB,
                    "exact_bytes": GIB,
                    "error": "CUDA_ERROR_OUT_OF_MEMORY",
                }
            third = runc.run(f"{container}-c", ["true"], **asked)
            assert third.rc != 0
            assert "largest free share is 40 % and 0.0 GiB on GPU-" in third.stderr
            # Overcommitted shares stay so, and are reported, after the setting is removed.
            product.configure(runc)
            figures = ("promised_memory_bytes", "free_memory_bytes", "memory_overcommit")
            assert [gpus(product, runc)[0][key] for key in figures] == [24 * GIB, 0, 1]
        finally:
            for name in pair:
                runc.kill(name)
                runc.wait(name)
                runc.delete(name)
        assert gpus(product, runc)[0]["free_memory_bytes"] == 16 * GIB


def test_without_the_setting_the_second_container_is_refused(
    runc: Engine, product: Product, container: str
) -> None:
    asked = asking(runc, core=30, memory_bytes=SLICE, gpu="0")
    with product.on(runc):
        try:
            started = runc.start(container, ["sleep", "100"], **asked)
            assert started.rc == 0, started.stderr
            second = runc.run(f"{container}-b", ["true"], **asked)
            assert second.rc != 0
            assert "largest free share is 70 % and 4.0 GiB on GPU-" in second.stderr
        finally:
            runc.kill(container)
            runc.wait(container)
            runc.delete(container)


def test_a_context_counts_against_the_slice_as_the_setting_says(
    runc: Engine, product: Product, container: str
) -> None:
    asked = asking(runc, core=30, memory_bytes=GIB)
    with product.on(runc, context_memory="300MiB"):
        filled = runc.run(container, FILL, **asked)
    assert json.loads(filled.stdout)["exact_bytes"] == GIB - 300 * MIB, filled.stderr
