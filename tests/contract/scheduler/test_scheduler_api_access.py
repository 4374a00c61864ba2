"""The extender's access to the API server: CA, credentials, proxy."""

from __future__ import annotations

import asyncio
import copy
import ssl
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.api_server.certificates import certify
from support.api_server.fake_api_server import FakeApiServer
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import ready
from vcuda_plugin.extender.follow.async_api import AsyncApi, Withheld
from vcuda_plugin.kube import api as kube_api
from vcuda_plugin.kube.api import CONNECTIONS, ApiError, KubeApi

ASKING = pod("asking", container(core=30, memory=16))


@pytest.fixture
def secret(tmp_path: Any) -> Iterator[FakeApiServer]:
    """Speaks TLS as `server` with clients that present `client`; `trusted.crt` is the authority."""
    certify(tmp_path, "server", "client")
    certify(tmp_path, "elsewhere", address="127.0.0.2")
    api_server = FakeApiServer()
    api_server.tls = ssl.create_default_context(
        ssl.Purpose.CLIENT_AUTH, cafile=tmp_path / "client.crt"
    )
    api_server.tls.load_cert_chain(tmp_path / "server.crt", tmp_path / "server.key")
    api_server.tls.verify_mode = ssl.CERT_REQUIRED
    key, certificate = f"{tmp_path}/client.key", f"{tmp_path}/client.crt"
    api_server.shown = {"client-certificate": certificate, "client-key": key}
    api_server.trusted = {"certificate-authority": f"{tmp_path}/trusted.crt"}
    trust(tmp_path, "server", "elsewhere")
    with api_server.running():
        api_server.put(node("a", gpus_of("a", 16, 16)), copy.deepcopy(ASKING))
        yield api_server


def trust(folder: Any, *names: str) -> None:
    (folder / "trusted.crt").write_bytes(
        b"".join((folder / f"{n}.crt").read_bytes() for n in names)
    )


def posted(api: FakeApiServer) -> list[str]:
    return [path for method, path, _ in api.requests if method == "POST"]


def test_an_api_server_with_a_trusted_certificate_gets_the_binding(
    secret: FakeApiServer, tmp_path: Any
) -> None:
    with ready(secret, tmp_path) as running:
        assert running.bind(ASKING, "a") == ""
    assert secret.pod("asking")["spec"]["nodeName"] == "a"


def test_a_certificate_of_another_authority_gets_nothing(
    secret: FakeApiServer, tmp_path: Any
) -> None:
    with ready(secret, tmp_path) as running:
        # The lists are read; then the authority is another one, before the first binding.
        trust(tmp_path, "elsewhere")
        assert "certificate verify failed" in running.bind(ASKING, "a")
        assert posted(secret) == []


def test_a_certificate_of_another_host_gets_nothing(secret: FakeApiServer, tmp_path: Any) -> None:
    with ready(secret, tmp_path) as running:
        assert secret.tls
        secret.tls.load_cert_chain(tmp_path / "elsewhere.crt", tmp_path / "elsewhere.key")
        assert "IP address mismatch" in running.bind(ASKING, "a")
        assert posted(secret) == []


def test_a_proxy_that_the_kubeconfig_names_is_asked_for_lists_and_bindings(tmp_path: Any) -> None:
    api_server = FakeApiServer()
    with api_server.running():
        proxy = f"http://127.0.0.1:{api_server.port}"
        api_server.trusted = {"server": "http://cluster.invalid", "proxy-url": proxy}
        api_server.put(node("a", gpus_of("a", 16, 16)), copy.deepcopy(ASKING))
        with ready(api_server, tmp_path) as running:
            assert running.bind(ASKING, "a") == ""
    path = "/api/v1/namespaces/default/pods/asking/binding"
    assert posted(api_server) == ["http://cluster.invalid" + path]


def test_an_extender_that_lost_its_lease_sends_nothing_by_a_proxy() -> None:
    class Proxied:
        has_proxy = True

    async def call() -> None:
        await AsyncApi(Proxied()).call("POST", "/x", {}, lambda: "standby")  # type: ignore[arg-type]

    with pytest.raises(Withheld, match="standby"):
        asyncio.run(call())


def test_more_bindings_at_once_than_connections_wait_for_their_turn(tmp_path: Any) -> None:
    api_server, gate = FakeApiServer(), Gate(CONNECTIONS)
    api_server.before = lambda method, path, _: gate.held() if path.endswith("/binding") else None
    with api_server.running():
        pods = [pod(f"p{n}", container(core=1, memory=1)) for n in range(2 * CONNECTIONS)]
        api_server.put(node("a", gpus_of("a", 16, 16)), *pods)
        with ready(api_server, tmp_path) as running, ThreadPoolExecutor(len(pods)) as threads:
            answers = list(threads.map(running.bind, pods, ["a"] * len(pods)))
    assert (answers, gate.most) == ([""] * len(pods), CONNECTIONS)


class Gate:
    """Lets no call through before `count` are there. most: how many were there at once."""

    def __init__(self, count: int) -> None:
        self.most = self._there = 0
        self._count, self._full = count, asyncio.Event()

    async def held(self) -> None:
        self._there += 1
        self.most = max(self.most, self._there)
        if self._there == self._count:
            self._full.set()
        await self._full.wait()
        await asyncio.sleep(0.5)  # for calls that do not wait for a turn
        self._there -= 1


def test_answer_up_to_the_bound_is_read_and_a_longer_one_refused(
    tmp_path: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    api_server = FakeApiServer()
    with api_server.running():
        pods = [pod(f"pod-{number}", container(core=30)) for number in range(500)]
        api_server.put(*pods)
        api = KubeApi(api_server.kubeconfig(tmp_path / "kubeconfig"), "test")
        found = api.get("/api/v1/pods")["items"]
        names = sorted(each["metadata"]["name"] for each in found)
        assert names == sorted(each["metadata"]["name"] for each in pods)
        monkeypatch.setattr(kube_api, "_MOST_BYTES", 100_000)
        with pytest.raises(ApiError, match="an answer of more than 100000 bytes") as refused:
            api.get("/api/v1/pods")
        assert refused.value.status == 0
