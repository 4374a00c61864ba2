"""With a read-only state-dir no container starts without its limits."""

from __future__ import annotations

import contextlib
import json
import os
import re
from collections.abc import Callable, Iterator

import pytest

from engines.hooks.test_hook_entry_point import LOW_LEVEL, Hooked, hooked
from release.soak import traces
from support.agent.claim_server import ClaimServer
from support.engines.base import Engine, Result
from support.engines.low_level import LowLevel
from support.host.private_host import PrivateHost
from support.product import Product, asking

__all__ = ["hooked"]  # a fixture
LINE = (
    r"{program}: /\S+/vcuda/(?:lock|allocations): cannot be written: Read-only file system; "
    r"mount it read-write, or set state-dir"
)


@contextlib.contextmanager
def file_system(host: PrivateHost, folder: str) -> Iterator[Callable[[str], object]]:
    """One of its own at `folder`; what it yields mounts it `ro` or `rw`."""
    os.makedirs(folder, exist_ok=True)
    host.check(["mount", "-t", "tmpfs", "vcuda-it", folder])
    try:
        yield lambda how: host.check(["mount", "-o", f"remount,{how}", folder])
    finally:
        host.check(["umount", folder])


def held(engine: Engine, product: Product) -> list[str]:
    """Allocations, as they are seen on the engine's host."""
    listed = engine.host.check([f"{product.prefix}/bin/vcuda", "ps", "--json"])
    return [row["id"] for row in json.loads(listed)]


def test_the_engine_shows_the_line_and_starts_a_container_without_a_request(
    engine: Engine, product: Product, container: str
) -> None:
    with product.on(engine), file_system(engine.host, product.state_dir(engine)) as mount:
        mount("ro")
        refused = engine.run(container, ["echo", "hello"], **asking(engine, core=30))
        engine.delete(container)
        assert (refused.rc != 0, refused.stdout) == (True, "")
        assert re.search(LINE.format(program="vcuda-container-runtime"), refused.stderr)
        asks_nothing = engine.run(container + "-plain", ["echo", "hello"])
        assert asks_nothing == Result(0, "hello\n", "")


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_the_agents_claim_socket_refuses_with_the_same_line(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    engine = start_engine(name)
    with product.on(engine), file_system(engine.host, product.state_dir(engine)) as mount:
        server = ClaimServer(engine.host, product, product.state_dir(engine))
        try:
            mount("ro")
            refused = engine.run(container, ["echo", "hello"], **asking(engine, core=30))
            line = LINE.format(program="vcuda-container-runtime")
            assert re.fullmatch(rf"{line} \(allocation {container}\)\n", refused.stderr)
            assert (refused.rc, refused.stdout) == (1, "")
            mount("rw")
            again = engine.run(container, ["echo", "hello"], **asking(engine, core=30))
            assert again == Result(0, "hello\n", "")
        finally:
            server.close()


def test_the_hook_refuses_and_leaves_nothing(hooked: Hooked, container: str, scratch: str) -> None:
    log = os.path.join(scratch, "log")
    host, state_dir = hooked.engine.host, hooked.product.state_dir(hooked.engine)
    with file_system(host, state_dir) as mount:
        mount("ro")
        before = traces.of(host)
        refused = hooked.run(
            hooked.with_share(container, "echo", "hello"), "createRuntime", log=log
        )
        assert traces.leftovers(before, traces.of(host)) == []
    assert (refused.rc != 0, refused.stdout) == (True, "")
    with open(log) as lines:
        assert re.search(LINE.format(program="vcuda-container-hook"), lines.read())


@pytest.mark.parametrize("name", LOW_LEVEL)
def test_share_that_cannot_be_released_is_swept_later(
    start_engine: Callable[[str], Engine], product: Product, container: str, name: str
) -> None:
    engine = start_engine(name)
    assert isinstance(engine, LowLevel)
    with product.on(engine), file_system(engine.host, product.state_dir(engine)) as mount:
        started = engine.start(container, ["sleep", "1000"], **asking(engine, core=30))
        assert started.rc == 0, started.stderr
        mount("ro")
        engine.delete(container)
        assert held(engine, product) == [container]
        mount("rw")
        # Two whole GPUs fit only after the dead container's share is released.
        again = engine.run(container + "-next", ["echo", "hello"], **asking(engine, core=200))
        assert again == Result(0, "hello\n", "")
        assert held(engine, product) == []
