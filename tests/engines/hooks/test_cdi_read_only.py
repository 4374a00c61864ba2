"""A slice by CDI in a container with a read-only root, as Docker 29 writes its config.json.

Docker 29 appends "ro" to every mount that is neither a user's volume nor one of a few below /dev
and /proc, CDI's mounts too.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterator
from typing import Any

import pytest

from support.engines.base import Engine, Wanted
from support.engines.low_level import LowLevel
from support.product import Product
from support.wrapper.entry_points import LIMIT, LOW_LEVEL, filled, run_changed

KEPT_WRITABLE = ("/proc", "/dev", "/dev/pts", "/dev/shm", "/dev/mqueue")
FILL = ["vcuda-workload", "alloc", "--chunk", str(LIMIT)]


@pytest.fixture(params=LOW_LEVEL)
def engine(
    request: pytest.FixtureRequest, start_engine: Callable[[str], Engine], product: Product
) -> Iterator[LowLevel]:
    engine = start_engine(request.param)
    assert isinstance(engine, LowLevel)
    with product.on(engine), engine.using(engine.plain_runtime()):
        yield engine
        vcuda(engine, product, "cdi", "remove", "--force", "train")
        engine.host.run(["rm", "-f", "/var/run/cdi/vcuda.json"])


def vcuda(engine: LowLevel, product: Product, *words: str) -> None:
    engine.host.check([f"{product.prefix}/bin/vcuda", *words])


def inject(config: dict[str, Any], edits: dict[str, Any]) -> None:
    """What an engine does with a CDI device's edits."""
    linux = config["linux"]
    for node in edits.get("deviceNodes", ()):
        number = os.stat(node["hostPath"]).st_rdev
        numbers = {"type": "c", "major": os.major(number), "minor": os.minor(number)}
        linux.setdefault("devices", []).append(
            {"path": node["path"], "fileMode": node["fileMode"], "uid": 0, "gid": 0, **numbers}
        )
        linux["resources"]["devices"].append({"allow": True, "access": "rw", **numbers})
    for mount in edits.get("mounts", ()):
        place = {"destination": mount["containerPath"], "type": "bind"}
        options = list(mount["options"])
        config["mounts"].append({**place, "source": mount["hostPath"], "options": options})
    for hook in edits.get("hooks", ()):
        name = hook.pop("hookName")
        config.setdefault("hooks", {}).setdefault(name, []).append(hook)


def test_a_slice_works_where_the_engine_made_every_mount_read_only(
    engine: LowLevel, product: Product, container: str
) -> None:
    vcuda(engine, product, "cdi", "generate", "--slice", "train=core:30,memory:1GiB")
    spec = json.loads(engine.host.check(["cat", "/var/run/cdi/vcuda.json"]))
    (train,) = [device for device in spec["devices"] if device["name"] == "train"]

    def read_only(config: dict[str, Any], bundle: str) -> None:
        config["root"]["readonly"] = True
        inject(config, spec["containerEdits"])
        inject(config, train["containerEdits"])
        for mount in config["mounts"]:
            if mount["destination"] not in KEPT_WRITABLE and "ro" not in mount["options"]:
                mount["options"].append("ro")

    script = f"""
      (echo no >/usr/local/vcuda/limits) 2>/dev/null && echo 'limits: written'
      (echo no >/usr/local/new) 2>/dev/null && echo 'root: written'
      exec {" ".join(FILL)}
    """
    result = run_changed(engine, Wanted(container, ["sh", "-c", script]), read_only, "/dev/null")
    assert filled(result) == {
        "allocated_bytes": LIMIT,
        "exact_bytes": LIMIT,
        "error": "CUDA_ERROR_OUT_OF_MEMORY",
    }
