"""Connections with incomplete requests do not block kube-scheduler."""

from __future__ import annotations

import contextlib
import resource
import socket
from collections.abc import Iterator
from typing import Any

import pytest

from contract.scheduler.test_scheduler_callers import api, files  # noqa: F401
from support.scheduler import extender
from support.scheduler.extender import Extender
from vcuda_plugin.extender.http.connections import MOST_CONNECTIONS

# More than the descriptors that systemd gives a service without LimitNOFILE=.
SILENT, DESCRIPTORS = 1100, 1024


@pytest.fixture(params=["tls", "insecure"])
def started(request: pytest.FixtureRequest, api: Any, files: str) -> Iterator[Extender]:  # noqa: F811
    names = {"--tls-cert": "server.crt", "--tls-key": "server.key", "--tls-client-ca": "ca.crt"}
    words = [word for key, name in names.items() for word in (key, f"{files}/{name}")]
    is_tls = request.param == "tls"
    with extender.running(api, files, *(words if is_tls else [])) as running:
        running.tls = extender.client(files) if is_tls else None
        running.wait_ready()
        yield running


@pytest.fixture
def many_descriptors() -> Iterator[None]:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    yield
    resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("first", [b"", b"\x16\x03\x01\x02\x00"], ids=["nothing", "half a hello"])
def test_silent_connections_do_not_shut_the_scheduler_out(started: Extender, first: bytes) -> None:
    resource.prlimit(started.process.pid, resource.RLIMIT_NOFILE, (DESCRIPTORS, DESCRIPTORS))
    with contextlib.ExitStack() as held, contextlib.closing(started.connect()) as earlier:
        earlier.request("GET", "/healthz")
        assert earlier.getresponse().read() == b"ok\n"
        clients = []
        for _ in range(SILENT):
            client = socket.create_connection(("127.0.0.1", started.port), 60)
            clients.append(held.enter_context(client))
            with contextlib.suppress(ConnectionError):  # closed by now
                client.send(first)
        assert started.call("GET", "/healthz")[0] == 200
        # The connection with a request stays open, silent ones beyond the bound are closed.
        earlier.request("GET", "/healthz")
        assert earlier.getresponse().read() == b"ok\n"
        for client in clients[: SILENT - MOST_CONNECTIONS]:
            assert is_ended(client)


@pytest.mark.parametrize("started", ["tls"], indirect=True)
def test_a_client_that_makes_no_handshake_is_closed(started: Extender) -> None:
    with socket.create_connection(("127.0.0.1", started.port), 30) as client:
        assert is_ended(client)


@pytest.mark.usefixtures("many_descriptors")
@pytest.mark.parametrize("started", ["insecure"], indirect=True)  # with TLS it needs the key
def test_clients_that_withhold_their_body_do_not_shut_the_scheduler_out(
    started: Extender,
) -> None:
    head = (
        b"POST /scheduler/bind HTTP/1.1\r\nHost: 127.0.0.1\r\nContent-Type: application/json\r\n"
        b"Content-Length: 1000\r\nExpect: 100-continue\r\n\r\n"
    )
    with contextlib.ExitStack() as held:
        sockets = []
        for _ in range(MOST_CONNECTIONS):
            client = held.enter_context(contextlib.closing(started.connect()))
            client.connect()
            client.sock.sendall(head)
            assert client.sock.recv(4096).startswith(b"HTTP/1.1 100 ")  # it waits for the body
            client.sock.sendall(b"{")
            sockets.append(client.sock)
        assert started.call("GET", "/healthz")[0] == 200
        for socket in sockets:
            assert is_ended(socket)


def is_ended(client: socket.socket) -> bool:
    """Raises TimeoutError: it is still open after the client's own time."""
    with contextlib.suppress(ConnectionError):
        while client.recv(4096):
            pass
    return True
