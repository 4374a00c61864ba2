"""Two extenders over one API server: one binds, and the other takes over."""

from __future__ import annotations

import asyncio
import contextlib
import socket
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

from unit import extender
from unit.clusters import container, node, pod, told
from unit.extender import Extender
from unit.played_api import PlayedApi
from vcuda_plugin.scheduler.leader import LEASE_SECONDS

BINDING = "/api/v1/namespaces/default/pods/p/binding"


@contextlib.contextmanager
def two(api: PlayedApi, folder: Any) -> Iterator[tuple[Extender, Extender]]:
    """The one that binds, and a standby that knows it."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    words = "--lease", "kube-system/extender"
    with extender.running(api, folder / "one", *words) as first:
        first.wait_ready()
        with extender.running(api, folder / "two", *words) as second:
            held = f"is held by {socket.gethostname()}_".encode()
            second.wait(lambda: held in second.call("GET", "/readyz")[1])
            yield first, second


def test_of_two_extenders_one_binds_and_when_it_ends_the_other_does(tmp_path: Any) -> None:
    api = PlayedApi()
    api.add(node("a", told("a", 16)))
    pods = [pod(name, container(core=60)) for name in ("p", "q")]
    with api.running(), two(api, tmp_path) as (first, second):
        api.put(*pods)
        refused = second.bind(pods[0], "a")
        assert refused.startswith("standby: the lease extender is held by ")
        assert first.bind(pods[0], "a") == ""
        # It is warm: it knows what the other has bound, and answers what changes nothing.
        second.wait(lambda: second.filter(pods[1], "a")["NodeNames"] == [])
        assert b"vcuda_extender_leader 0.0" in second.call("GET", "/metrics")[1]
        first.process.terminate()
        assert first.process.wait(30) == 0
        second.wait_ready()
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 %")
        api.delete("default/p")
        second.wait(lambda: second.bind(pods[1], "a") == "")


def test_when_the_holder_is_killed_the_other_binds_after_the_lease_and_knows_what_was_bound(
    tmp_path: Any,
) -> None:
    """Real processes, the real clock: half a minute. The holder dies amid a binding that the API
    server then makes."""
    api, writes, killed = PlayedApi(), list[float](), threading.Event()
    api.add(node("a", told("a", 16)))
    pods = [pod(name, container(core=60)) for name in ("p", "q")]

    def before(method: str, path: str, _: Any) -> Any:
        if method in ("POST", "PUT") and "/leases" in path:
            writes.append(time.monotonic())
        return until_killed() if path.endswith("/p/binding") else None

    async def until_killed() -> None:
        while not killed.is_set():
            await asyncio.sleep(0.02)

    api.before = before
    with api.running(), two(api, tmp_path) as (first, second), ThreadPoolExecutor(1) as threads:
        api.put(*pods)
        threads.submit(first.bind, pods[0], "a")
        second.wait(lambda: any(path == BINDING for _, path, _ in api.requests))
        first.process.kill()
        first.process.wait()
        time.sleep(1)  # what it sent has come
        last = len(writes)
        killed.set()
        # Until then nobody binds, and what the holder asked for last is known.
        second.wait(lambda: second.filter(pods[1], "a")["NodeNames"] == [])
        assert second.bind(pods[1], "a").startswith("standby: the lease extender is held by ")
        second.wait_ready(120)
        assert writes[last] - writes[last - 1] > LEASE_SECONDS
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 %")
        assert second.bind(pods[0], "a") == ""
        api.delete("default/p")
        second.wait(lambda: second.bind(pods[1], "a") == "")
