"""A notebook-like program in a container of a real engine, and the node agent beside it."""

from __future__ import annotations

import json
import os
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from support.agent.node_agent import only_child
from support.engines.base import Engine
from support.product import MIB, Product

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


def state(engine: Engine, product: Product, id: str = "") -> tuple[str, str]:
    """The step of a container's record, and its reason. id: "": the only one's."""
    records = product.allocations(engine)
    (record,) = (one for one in records if id in ("", one["container_id"]))
    held = record.get("suspension") or {}
    return str(held.get("step", "running")), str(held.get("by", ""))


def used(engine: Engine, product: Product) -> int:
    """MiB of the GPUs in use, as the driver counts them."""
    return sum(queried(engine, product, "memory.used"))


def cells(engine: Engine, id: str) -> list[dict[str, Any]]:
    return [json.loads(line) for line in engine.logs(id).splitlines()]


def queried(engine: Engine, product: Product, field: str) -> list[int]:
    root = product.driver_root
    words = [f"--query-gpu={field}", "--format=csv,noheader,nounits"]
    libraries = f"LD_LIBRARY_PATH={root}/usr/lib/x86_64-linux-gnu"
    program = ["env", f"SOFTGPU_ROOT={root}", libraries, f"{root}/usr/bin/nvidia-smi"]
    return [int(line) for line in engine.host.check([*program, *words]).splitlines()]


def kinds(engine: Engine, product: Product) -> list[str]:
    """The kinds of the node's events, oldest first."""
    program = [product.prefix + "/bin/vcuda", "--config", product.config, "events", "--json"]
    return [event["kind"] for event in json.loads(engine.host.check(program))]
