"""`vcuda why` on real engines: a container that was refused, and one at its memory limit."""

from __future__ import annotations

import json
from collections.abc import Callable
from typing import Any

import pytest

from engines.starts.test_container_names import vcuda
from support.engines.base import IMAGE, Engine
from support.engines.docker import Docker
from support.product import MIB, Product, asking
from support.waiting import until


def why(engine: Engine, product: Product, name: str) -> Any:
    answer = vcuda(engine, product, "why", name, "--json")
    assert answer.stderr == ""
    return json.loads(answer.stdout)


@pytest.mark.parametrize("kind", ["docker", "podman"])
def test_a_container_at_its_memory_limit_and_a_refused_one_are_explained_by_name(
    start_engine: Callable[[str], Engine], product: Product, container: str, kind: str
) -> None:
    engine = start_engine(kind)
    refused = container + "-refused"
    with product.on(engine):
        # The second one fails at the limit, the first one stays.
        fill = "vcuda-workload hold --bytes 384MiB --seconds 100 & sleep 2; vcuda-workload hold"
        words = ["sh", "-c", f"{fill} --bytes 384MiB --seconds 1; sleep 100"]
        limit = asking(engine, core=60, memory_bytes=512 * MIB)
        started = engine.start(container, words, **limit)
        try:
            assert started.rc == 0, started.stderr
            assert engine.start(refused, ["sleep", "1"], **asking(engine, core=250)).rc != 0
            until(lambda: why(engine, product, container)["shares"][0]["refusals"])
            answer = why(engine, product, container)
            assert (answer["name"], answer["status"]) == (container, "running")
            assert answer["image"] == IMAGE
            (memory,) = [each for each in answer["reasons"] if each["kind"] == "memory"]
            assert "refused at its limit of 512 MiB on GPU 0" in memory["what"]
            assert memory["hint"] == f"'vcuda limit {container} --memory SIZE'"
            (event,) = json.loads(vcuda(engine, product, "events", "--json").stdout)[-1:]
            assert event["kind"] == "refused"
            # Podman removes a container that it cannot create, Docker keeps its name.
            word = refused if isinstance(engine, Docker) else event["container"]
            (reason,) = why(engine, product, word)["reasons"]
            assert reason["kind"] == "refused" and event["text"] in reason["what"]
        finally:
            for name in (container, refused):
                engine.delete(name)
    assert product.allocations(engine) == []
