"""`vcuda limit` on running containers: the share of the next program in them."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.engines.base import Engine, Result
from support.engines.low_level import LowLevel
from support.host import cgroups
from support.product import Product, asking

GIB = 1 << 30


class Limited:
    """A container that runs, with 30 % and 1 GiB of the first GPU; and the command on its host."""

    def __init__(self, engine: LowLevel, product: Product, name: str) -> None:
        self.engine, self.product, self.name = engine, product, name

    def start(self, name: str, *args: str, core: int = 30, memory_bytes: int = GIB) -> None:
        asked = asking(self.engine, core=core, memory_bytes=memory_bytes, gpu="0")
        started = self.engine.start(name, args or ["sleep", "100"], **asked)
        assert started.rc == 0, started.stderr

    def vcuda(self, *words: str) -> Result:
        program = self.product.prefix + "/bin/vcuda"
        command = [program, "--config", self.product.config, *words]
        return self.engine.host.run(command, env=self.engine.environment())

    def limit(self, *words: str) -> Result:
        return self.vcuda("limit", self.name, *words)

    def most(self) -> int:
        """Bytes that a program in the container can allocate now."""
        result = self.engine.exec(self.name, ["vcuda-workload", "alloc", "--chunk", "256MiB"])
        return int(json.loads(result.stdout)["exact_bytes"])


# Each runtime, and each version of cgroups that this host has.
@pytest.fixture(params=["runc-v1" if cgroups.is_v1() else "runc-v2", "crun-v2"])
def box(
    request: pytest.FixtureRequest,
    start_engine: Callable[[str], Engine],
    product: Product,
    container: str,
) -> Iterator[Limited]:
    engine = start_engine(request.param)
    assert isinstance(engine, LowLevel)
    with product.on(engine):
        limited = Limited(engine, product, container)
        limited.start(container, "vcuda-workload", "hold", "--bytes", "256MiB", "--seconds", "100")
        try:
            yield limited
        finally:
            engine.delete(container)
    assert product.allocations(engine) == []


def test_a_running_container_gets_more_and_less_without_a_restart(box: Limited) -> None:
    held = GIB // 4
    assert box.most() == GIB - held
    grown = box.limit("--memory", "2GiB", "--core", "50")
    assert (grown.rc, grown.stderr) == (0, "")
    assert grown.stdout.startswith(f"{box.name} has 50 % and 2.0 GiB of GPU ")
    assert box.most() == 2 * GIB - held
    refused = box.limit("--memory", "128MiB")
    assert (refused.rc, refused.stdout) == (1, "")
    assert refused.stderr.startswith(f"vcuda: {box.name}: its processes hold 256 MiB; 128 MiB ask")
    assert box.most() == 2 * GIB - held
    assert box.limit("--memory", "128MiB", "--force").rc == 0
    assert box.most() == 0
    assert box.limit("--memory", "512MiB").rc == 0
    assert box.most() == held
    (record,) = box.product.allocations(box.engine)
    (share,) = record["shares"]
    assert (share["memory_bytes"], share["core_percent"]) == (GIB // 2, 50)


def test_what_others_hold_is_refused_with_what_is_free(box: Limited) -> None:
    other = box.name + "-other"
    box.start(other, core=60, memory_bytes=4 * GIB)
    try:
        (gpu,) = [gpu for gpu in json.loads(box.vcuda("gpus", "--json").stdout) if gpu["tenants"]]
        free = f"at most 40 % and {(gpu['memory_bytes'] - 4 * GIB) >> 30}.0 GiB of {gpu['uuid']}"
        for words in (["--core", "41"], ["--memory", str(gpu["memory_bytes"])]):
            refused = box.limit(*words)
            assert (refused.rc, refused.stdout) == (1, "")
            assert refused.stderr.startswith(f"vcuda: {box.name}: {free} can be its own; ")
        assert box.limit("--core", "40").rc == 0
    finally:
        box.engine.delete(other)
    answer: Any = json.loads(box.limit("--core", "100", "--json").stdout)
    assert (answer["changed"], answer["after"]["core_percent"]) == (True, 100)
