"""The extender with clients that send malformed or oversized data or have no certificate."""

from __future__ import annotations

import contextlib
import http.client
import socket
import ssl
from collections.abc import Iterator
from typing import Any

import pytest

from support.api_server.certificates import certify
from support.api_server.fake_api_server import FakeApiServer
from support.scheduler import extender
from support.scheduler.clusters import container, gpus_of, node, pod
from support.scheduler.extender import ready

MANY = b'{"Pod": {}, "NodeNames": [' + b'"a",' * 100_000 + b'"a"]}'
ASKING = pod("asking", container(core=30, memory=16))
VICTIMS = b'{"Pod": {}, "NodeNameToMetaVictims": {"a": {"Pods": [%b]}}}'


@pytest.fixture
def api() -> Iterator[FakeApiServer]:
    with extender.api_of_two_nodes() as api_server:
        yield api_server


def test_an_invalid_request_gets_one_line(api: FakeApiServer, tmp_path: Any) -> None:
    with ready(api, tmp_path) as running:
        for verb, body, line in [
            ("predicates", b"{", "predicates: not JSON: "),
            ("predicates", b"[" * 100_000, "predicates: not JSON: "),
            ("predicates", b"[]", "predicates: not a JSON object"),
            ("predicates", b'{"Pod": 3}', "predicates: ExtenderArgs without a Pod"),
            ("priorities", b'{"Pod": {}, "NodeNames": [1]}', "priorities: NodeNames are not all"),
            ("predicates", b'{"Pod": {}, "NodeNames": {}}', "predicates: NodeNames is not a list"),
            ("predicates", b'{"Pod": {}, "Nodes": {"items": 7}}', "predicates: Nodes is not a"),
            ("priorities", b'{"Pod": {}, "Nodes": 7}', "priorities: Nodes is not a list"),
            ("predicates", MANY, "predicates: more than 100000 NodeNames"),
            ("bind", b'{"Node": "a"}', "bind: ExtenderBindingArgs need PodName"),
            ("preempt", b"{}", "preempt: ExtenderPreemptionArgs without a Pod"),
            ("preempt", b'{"Pod": {}, "NodeNameToVictims": [1]}', "preempt: "),
            ("preempt", VICTIMS % b"{}", "preempt: Victims need Pods with their UIDs, and a num"),
            ("preempt", VICTIMS % b'{"UID": 3}', "preempt: Victims need Pods"),
        ]:
            code, answer = running.call("POST", "/scheduler/" + verb, body)
            assert (code, answer.count(b"\n")) == (400, 1)
            assert answer.decode().startswith(line)
        assert running.call("GET", "/scheduler/bind")[0] == 405
        nonsense = pod("p", container(core="thirty"))
        line = (
            "pod default/p, container main: tencent.com/vcuda-core cannot be 'thirty'; "
            "write a whole number"
        )
        assert running.filter(nonsense, "a", "b")["FailedAndUnresolvableNodes"] == {
            "a": line,
            "b": line,
        }


def test_malformed_objects_do_not_stop_the_extender(api: FakeApiServer, tmp_path: Any) -> None:
    strange = '{"gpus":[{"uuid":"G","index":0,"model":%s,"memory_bytes":%s}]}'
    for number, (model, size) in enumerate([("[]", "1"), ('"m"', "1e999"), ('"m"', "-1")]):
        annotations = {"vcuda.io/node-gpus": strange % (model, size)}
        api.put(node(f"strange-{number}", annotations=annotations))
    forged = pod("forged", container(core="1e9"), node="a")
    forged["metadata"]["annotations"] = {"vcuda.io/placement-decision": "[" * 10_000}
    api.put(forged, pod("bare", node="a"))
    with ready(api, tmp_path) as running:
        api.put(node("late", gpus_of("late", 16)))
        running.wait(lambda: running.filter(ASKING, "late")["NodeNames"] == ["late"])
        never = running.filter(ASKING, *[f"strange-{number}" for number in range(3)])
        assert all(
            text.startswith("vcuda.io/node-gpus cannot be read: ")
            for text in never["FailedAndUnresolvableNodes"].values()
        )
        assert len(never["FailedAndUnresolvableNodes"]) == 3


def test_endless_body_is_refused_and_not_stored(api: FakeApiServer, tmp_path: Any) -> None:
    with ready(api, tmp_path) as running:

        def resident() -> int:
            with open(f"/proc/{running.process.pid}/status") as lines:
                return int(next(line.split()[1] for line in lines if line.startswith("VmHWM")))

        before = resident()
        code, answer = running.call("POST", "/scheduler/predicates", b"x" * (50 << 20))
        line = b"predicates: more than 33554432 bytes were sent\n"
        assert (code, answer) == (413, line)
        with socket.create_connection(("127.0.0.1", running.port)) as chunked:
            head = "POST /scheduler/bind HTTP/1.1\r\nHost: localhost\r\n"
            head += "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
            chunked.sendall(head.encode())
            piece = b"100000\r\n" + b"x" * (1 << 20) + b"\r\n"
            with contextlib.suppress(ConnectionError):
                for _ in range(50):
                    chunked.sendall(piece)
            assert chunked.recv(4096).startswith(b"HTTP/1.1 413 ")
        assert resident() - before < 100 << 10
        assert running.filter(ASKING, "a")["NodeNames"] == ["a"]


def test_tls_answers_only_clients_that_its_authority_certifies(
    api: FakeApiServer, tmp_path: Any
) -> None:
    certify(tmp_path, "server", "client")
    own = ["--tls-cert", f"{tmp_path}/server.crt", "--tls-key", f"{tmp_path}/server.key"]
    words = [*own, "--tls-client-ca", f"{tmp_path}/client.crt"]
    with extender.running(api, tmp_path, *words) as running:
        known = ssl.create_default_context(cafile=f"{tmp_path}/server.crt")
        known.load_cert_chain(f"{tmp_path}/client.crt", f"{tmp_path}/client.key")
        assert _healthz(running.port, known) == b"ok\n"
        with pytest.raises(OSError):
            _healthz(running.port, ssl.create_default_context(cafile=f"{tmp_path}/server.crt"))


def _healthz(port: int, context: ssl.SSLContext) -> bytes:
    connection = http.client.HTTPSConnection("127.0.0.1", port, timeout=30, context=context)
    with contextlib.closing(connection):
        connection.request("GET", "/healthz")
        return connection.getresponse().read()


@pytest.mark.parametrize(
    ("words", "line"),
    [
        (["--insecure", "--listen", "nowhere"], "--listen nowhere: cannot listen: "),
        ([], "--listen 127.0.0.1:3456: any client could bind any pod; name --tls-cert, "),
        (["--tls-cert", "x", "--tls-key", "y"], "127.0.0.1:3456: any client could bind any pod; "),
        (["--insecure", "--tls-cert", "x"], "--tls-cert x: needs both --tls-cert and --tls-key; "),
        (["--kubeconfig", "/missing"], "/missing: leads to no cluster: "),
        (["--config", "{folder}/broken.toml"], "broken.toml:1: 'nonsense' is not a setting; "),
        (["--config", "/missing"], "/missing: no such file; name an existing file, "),
    ],
)
def test_a_start_that_cannot_be_is_one_line(
    api: FakeApiServer, tmp_path: Any, words: list[str], line: str
) -> None:
    (tmp_path / "broken.toml").write_text("nonsense\n")
    (tmp_path / "empty.toml").touch()
    base = ["--kubeconfig", api.kubeconfig(tmp_path / "kubeconfig")]
    base += ["--config", f"{tmp_path}/empty.toml"]
    options = [word.format(folder=tmp_path) for word in words]
    with extender.process(tmp_path, *base, *options) as started:
        assert started.wait(60) == 1
    stderr = extender.log(tmp_path)
    assert line in stderr
    assert stderr.startswith("vcuda-scheduler-extender: ")
    assert stderr.count("\n") == 1
