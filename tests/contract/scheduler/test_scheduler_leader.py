"""Two extenders on one API server: one binds, and the other takes over."""

from __future__ import annotations

import asyncio
import contextlib
import signal
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import pytest

from support.api_server.fake_api_server import PODS, FakeApiServer, status
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import Extender
from vcuda_oci.model.names import ANNOTATION_DECISION
from vcuda_plugin.extender.bind.leader import LEASE_SECONDS

BINDING = "/api/v1/namespaces/default/pods/p/binding"
OVER = "ExceedsGPUQuota: namespace default uses 0.6 of 1 cards of M40; 0.6 asked"


@contextlib.contextmanager
def two(
    api: FakeApiServer, folder: Any, program: Sequence[str] = extender.PROGRAM
) -> Iterator[tuple[Extender, Extender]]:
    """The one that binds, and a standby that knows it. program: of the first."""
    for name in ("one", "two"):
        (folder / name).mkdir()
    words = "--lease", "kube-system/extender"
    with extender.running(api, folder / "one", *words, program=program) as first:
        first.wait_ready()
        with extender.running(api, folder / "two", *words) as second:
            held = f"is held by {socket.gethostname()}_".encode()
            second.wait(lambda: held in second.call("GET", "/readyz")[1])
            yield first, second


def test_one_of_two_extenders_binds_and_when_it_ends_the_other_does(tmp_path: Any) -> None:
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16)))
    pods = [pod(name, container(core=60)) for name in ("p", "q")]
    with api.running(), two(api, tmp_path) as (first, second):
        api.put(*pods)
        refused = second.bind(pods[0], "a")
        assert refused.startswith("standby: the lease extender is held by ")
        assert first.bind(pods[0], "a") == ""
        # The standby is warm: it knows the other's bindings and answers read-only calls.
        second.wait(lambda: second.filter(pods[1], "a")["NodeNames"] == [])
        assert b"vcuda_extender_leader 0.0" in second.call("GET", "/metrics")[1]
        first.process.terminate()
        assert first.process.wait(30) == 0
        second.wait_ready()
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 percent")
        api.delete("default/p")
        second.wait(lambda: second.bind(pods[1], "a") == "")


def test_after_the_killed_holders_lease_the_other_binds_and_knows_all_bindings(
    tmp_path: Any,
) -> None:
    """Real processes, the real clock: half a minute. The holder dies amid a binding that the API
    server then makes."""
    api, writes, killed = FakeApiServer(), list[float](), threading.Event()
    api.add(node("a", gpus_of("a", 16)))
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
        time.sleep(1)  # its request has arrived
        last = len(writes)
        killed.set()
        # Until then no replica binds, and the leader's last binding is known.
        second.wait(lambda: second.filter(pods[1], "a")["NodeNames"] == [])
        assert second.bind(pods[1], "a").startswith("standby: the lease extender is held by ")
        second.wait_ready(120)
        assert writes[last] - writes[last - 1] > LEASE_SECONDS
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 percent")
        assert second.bind(pods[0], "a") == ""
        api.delete("default/p")
        second.wait(lambda: second.bind(pods[1], "a") == "")


@pytest.mark.parametrize(
    ("looks", "errors", "sent"),
    [
        # Its watch may bring the other's binding before it goes on.
        (1, ("standby: the lease extender is held by ", OVER), []),
        (2, ("the API server: ",), [BINDING]),
    ],
    ids=["before it asks the API server", "before it says what to bind"],
)
def test_stopped_leader_that_resumes_after_another_binds_no_pod(
    tmp_path: Any, looks: int, errors: tuple[str, ...], sent: list[str]
) -> None:
    """Real processes, the real clock: half a minute. Neither the GPU nor the quota has room for
    what both bind."""
    api, stop = FakeApiServer(), tmp_path / "one" / "looks"
    labels = {"gaia.tencent.com/gpu-model": "M40"}
    api.put(*[node(name, gpus_of(name, 16), labels=labels) for name in "ab"])
    quota = {"gpu_quota": '{"default": {"quota": {"M40": 1}}}'}
    api.put({"metadata": {"name": "gpuquota", "namespace": "kube-system"}, "data": quota})
    pods = [pod(name, container(core=60)) for name in ("p", "q")]
    program = (str(Path(__file__).with_name("stopping_extender.py")), str(stop))
    with api.running(), two(api, tmp_path, program) as (first, second):
        api.put(*pods)
        with ThreadPoolExecutor(1) as threads:
            stop.write_text(str(looks))
            binding = threads.submit(first.bind, pods[0], "a")
            first.wait(lambda: state(first) == "T")
            second.wait_ready(120)
            assert second.bind(pods[1], "a") == ""
            first.process.send_signal(signal.SIGCONT)
            assert binding.result().startswith(errors)
            first.wait(lambda: [path for _, path, _ in api.requests if path == BINDING] == sent)
        assert [bound_to(api, name) for name in ("p", "q")] == [("", False), ("a", True)]
        assert second.bind(pods[0], "b") == OVER
        # It is now a standby: it knows the other's bindings and binds nothing.
        first.wait(lambda: first.filter(pods[0], "b")["FailedNodes"] == {"b": OVER})
        assert first.bind(pods[0], "b").startswith("standby: the lease extender is held by ")
        # Nor does it still reserve that share when it leads again.
        second.process.terminate()
        assert second.process.wait(30) == 0
        first.wait_ready()
        assert first.bind(pods[0], "a") == OVER


def test_a_new_leader_binds_once_it_has_read_the_last_leaders_bindings(
    tmp_path: Any,
) -> None:
    """It was stopped while the holder bound and ended; what it then asks for first, it is not
    told."""
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16)))
    pods = [pod(name, container(core=60)) for name in ("p", "q")]
    with api.running(), two(api, tmp_path) as (first, second):
        api.put(*pods)
        second.wait(lambda: second.inspect("a") is not None)
        second.process.send_signal(signal.SIGSTOP)
        second.wait(lambda: state(second) == "T")
        api.cut()
        assert first.bind(pods[0], "a") == ""
        first.process.terminate()
        assert first.process.wait(30) == 0
        api.forget()
        api.before = lambda method, path, _: status(500, "down") if path == PODS else None
        second.process.send_signal(signal.SIGCONT)
        taken = "standby: the lease extender was taken just now; try again in a moment"
        second.wait(lambda: second.bind(pods[1], "a") == taken)
        time.sleep(3)
        assert second.bind(pods[1], "a") == taken
        api.before = lambda *_: None
        second.wait_ready()
        assert second.bind(pods[1], "a").startswith("node a: largest free share is 40 percent")


def test_a_holder_that_ends_before_its_binding_does_leaves_the_lease_to_time(
    tmp_path: Any,
) -> None:
    """The API server takes its time, and would still bind when another binds."""
    api = FakeApiServer()
    api.add(node("a", gpus_of("a", 16)))
    asking = pod("p", container(core=60))

    def before(method: str, path: str, _: Any) -> Any:
        if path == BINDING.removesuffix("/binding"):
            api.put(asking)  # otherwise the pod is known without a call
        return asyncio.sleep(3) if "/pods/p" in path else None

    with api.running(), two(api, tmp_path) as (first, second), ThreadPoolExecutor(1) as threads:
        lease, held = next(iter(api.leases.values()))["spec"]["holderIdentity"], "holderIdentity"
        api.before = before
        threads.submit(first.bind, asking, "a")
        second.wait(lambda: any(path.endswith("/pods/p") for _, path, _ in api.requests))
        first.process.terminate()
        assert first.process.wait(30) == 0
        assert [each["spec"][held] for each in api.leases.values()] == [lease]


def state(running: Extender) -> str:
    """As proc(5) writes it: "T" is stopped."""
    with open(f"/proc/{running.process.pid}/stat") as file:
        return file.read().rpartition(")")[2].split()[0]


def bound_to(api: FakeApiServer, name: str) -> tuple[str, bool]:
    """Its node, and whether it has a decision."""
    found = api.pod(name)
    annotations = found["metadata"]["annotations"]
    return found["spec"].get("nodeName", ""), ANNOTATION_DECISION in annotations
