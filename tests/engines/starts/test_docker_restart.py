"""`docker restart` gives a container its share again; the engine runs hooks in between."""

from __future__ import annotations

import json
from collections.abc import Callable

from support.engines.base import Engine
from support.engines.docker import Docker
from support.product import MIB, Product, asking

LIMIT = 1024 * MIB


def test_a_restarted_container_has_its_limit_again(
    start_engine: Callable[[str], Engine], product: Product, container: str
) -> None:
    docker = start_engine("docker")
    assert isinstance(docker, Docker)
    with product.on(docker):
        asked = asking(docker, core=30, memory_bytes=LIMIT, gpu="1")
        started = docker.start(container, ["sleep", "100"], **asked)
        try:
            assert started.rc == 0, started.stderr
            (before,) = product.allocations(docker)
            assert docker.restart(container).rc == 0
            (after,) = product.allocations(docker)
            assert (after["id"], after["shares"]) == (before["id"], before["shares"])
            filled = docker.exec(container, ["vcuda-workload", "alloc", "--chunk", str(LIMIT)])
            assert json.loads(filled.stdout)["exact_bytes"] == LIMIT
        finally:
            docker.delete(container)
        assert product.allocations(docker) == []
