"""The HTTP process under clients of every kind: each gets an answer, or an end."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from support.agent.agent_http import Served, command, free_port, resident_bytes
from support.ledger.samples import GIB, gpus
from support.ledger.tenants import Tenants
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_plugin.agent.http import http_server
from vcuda_plugin.kube.node_gpus import NodeGpus


@pytest.fixture(scope="module")
def tenants(tmp_path_factory: Any) -> Iterator[Tenants]:
    """A node of 8 GPUs with 16 containers each."""
    node = Tenants(str(tmp_path_factory.mktemp("node")))
    for number in range(128):
        node.add_record(f"c{number}", shares=[GpuShare(f"GPU-{number // 16}", GIB, 6)])
    yield node
    node.close()


@pytest.fixture(scope="module")
def served(tenants: Tenants) -> Iterator[Served]:
    """One process bears all of them."""
    process = Served(tenants.state_dir)
    process.send_gpus(NodeGpus(gpus(*[16] * 8)))
    yield process
    assert process.end() == 0


def received(client: socket.socket) -> bytes:
    """All bytes until the other side closes the connection."""
    found = b""
    try:
        while part := client.recv(1 << 16):
            found += part
    except ConnectionResetError:
        pass
    return found


def test_each_path_answers_what_it_is_for(served: Served) -> None:
    status, headers, metrics = served.get("/metrics")
    assert (status, headers["Content-Type"]) == (200, "text/plain; version=0.0.4; charset=utf-8")
    assert served.get("/metric?x=1")[2] == metrics
    assert served.tree("/version") == {"program": names.AGENT_PROGRAM, "version": names.VERSION}
    assert served.get("/healthz")[::2] == (200, b"ok\n")
    assert served.tree("/usage")["node"] == "node-1"
    browser = {"Accept": "text/html,application/xhtml+xml,*/*;q=0.8"}
    for path in ("/usage", "/graph"):
        assert served.get(path, **browser)[1]["Content-Type"] == "text/html; charset=utf-8"
    assert (served.get("/")[0], served.get("/")[1]["Location"]) == (307, "usage")
    assert served.get("/none")[0] == 404


OPEN_METRICS = "application/openmetrics-text;version=1.0.0;q=0.7,text/plain;version=0.0.4;q=0.5"


@pytest.mark.parametrize("setting", ["no", "yes"])
def test_exemplars_need_the_setting_and_a_client_that_accepts_them(
    tmp_path: Any, setting: str
) -> None:
    events.record(str(tmp_path), "p", "claimed", "box", "", seconds=0.02)
    process = Served(str(tmp_path), f'exemplars = "{setting}"')
    for accept in ("text/plain", "*/*", OPEN_METRICS):
        is_open = accept == OPEN_METRICS and setting == "yes"
        _, headers, page = process.get("/metrics", Accept=accept)
        assert headers["Content-Type"].startswith("application/openmetrics-text") == is_open
        assert (b'# {allocation="box"} 0.02 ' in page, page.endswith(b"# EOF\n")) == (
            is_open, is_open
        )  # fmt: skip
    assert process.end() == 0


def test_only_get_and_head_are_answered(served: Served) -> None:
    status, headers, body = served.get("/usage", "HEAD")
    assert (status, body) == (200, b"") and int(headers["Content-Length"]) > 0
    status, headers, _ = served.get("/usage", "POST")
    assert (status, headers["Allow"]) == (405, "GET, HEAD")


def test_a_page_from_elsewhere_does_not_read_a_loopback_address(served: Served) -> None:
    """Its name may be made to lead here; the browser then says that name."""
    assert served.get("/usage", Host="pods.example.org:5678")[0] == 403
    assert served.get("/usage", Host=f"localhost:{served.port}")[0] == 200
    assert served.get("/usage", Host="[::1]")[0] == 200


def test_connection_stays_open_and_answers_requests_in_order(served: Served) -> None:
    with served.connect() as client:
        one = b"GET /version HTTP/1.1\r\nHost: localhost\r\n\r\n"
        client.sendall(one + one.replace(b"version", b"healthz"))
        found = b""
        while not found.endswith(b"ok\n"):
            found += client.recv(4096)
        assert found.count(b"HTTP/1.1 200") == 2
        client.sendall(one.replace(b"Host", b"Connection: close\r\nHost"))
        assert received(client).endswith(b'"}\n')


@pytest.mark.parametrize(
    "sent",
    [
        b"\0\1\2 not HTTP\r\n\r\n",
        b"GET /usage HTTP/1.1\r\nHost: localhost\r\nX: " + b"x" * (1 << 20) + b"\r\n\r\n",
        b"GET /usage HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n",
        b"GET /usage HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n",
        b"GET " + b"/" * 9999 + b" HTTP/1.0\r\nHost: localhost\r\n\r\n",
    ],
    ids=["no request", "a header of 1 MB", "a body that never comes", "two hosts", "a long path"],
)
def test_odd_requests_end_their_own_connection(served: Served, sent: bytes) -> None:
    before = resident_bytes(served.process.pid)
    with served.connect() as client:
        try:
            client.sendall(sent)
        except (ConnectionResetError, BrokenPipeError):
            pass
        received(client)
    assert served.get("/healthz")[0] == 200
    assert resident_bytes(served.process.pid) - before < 8 << 20


def test_a_client_that_sends_a_request_byte_by_byte_is_disconnected(served: Served) -> None:
    began = time.monotonic()
    with served.connect() as client:
        with pytest.raises(OSError):
            for byte in b"GET /usage HTTP/1.1\r\nX: " + b"x" * 1000:
                client.sendall(bytes([byte]))
                time.sleep(0.2)
        assert 0 < time.monotonic() - began - http_server.STEP_SECONDS < 60


def test_the_connections_that_wait_longest_make_room_for_new_ones(served: Served) -> None:
    waiting = [served.connect() for _ in range(http_server.MOST_CONNECTIONS + 20)]
    try:
        assert served.get("/healthz")[0] == 200
        waiting[0].settimeout(1)
        assert received(waiting[0]) == b""
        waiting[-1].sendall(b"GET /healthz HTTP/1.0\r\nHost: localhost\r\n\r\n")
        assert received(waiting[-1]).endswith(b"ok\n")
    finally:
        for client in waiting:
            client.close()


def test_500_scrapes_at_once_are_all_answered(served: Served) -> None:
    before, all_at_once = resident_bytes(served.process.pid), threading.Barrier(500)

    def scrape(_: int) -> tuple[int, dict[str, str], bytes]:
        all_at_once.wait(60)
        return served.get("/metrics")

    with ThreadPoolExecutor(500) as clients:
        answers = list(clients.map(scrape, range(500)))
    assert {status for status, _, _ in answers} == {200}
    assert {body.count(b"vcuda_container_memory_limit_bytes{") for _, _, body in answers} == {128}
    assert resident_bytes(served.process.pid) - before < 48 << 20


def test_clients_that_take_no_answer_hold_a_bounded_part_of_memory(served: Served) -> None:
    served.get("/metrics")
    before = resident_bytes(served.process.pid)
    asked = b"GET /metrics HTTP/1.1\r\nHost: localhost\r\n\r\n" * 40
    deaf = []
    try:
        for _ in range(200):
            client = socket.socket()
            client.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
            client.connect(("127.0.0.1", served.port))
            client.sendall(asked)
            deaf.append(client)
        # Before they are given up, one after the other.
        began = time.monotonic()
        assert served.get("/healthz")[0] == 200
        assert time.monotonic() - began < http_server.STEP_SECONDS
        assert resident_bytes(served.process.pid) - before < 64 << 20
    finally:
        for client in deaf:
            client.close()
    assert json.loads(served.get("/version")[2])


def test_the_process_ends_with_the_agent(tenants: Tenants) -> None:
    """The agent's end closes both pipes between them."""
    process = Served(tenants.state_dir)
    assert process.process.stdin
    process.process.stdin.close()
    assert process.process.wait(30) == 0
    reader, writer = os.pipe()
    os.close(reader)
    orphan = subprocess.run(
        command(free_port(), tenants.state_dir), stdin=subprocess.DEVNULL, stdout=writer,
        stderr=subprocess.PIPE, timeout=60,
    )  # fmt: skip
    os.close(writer)
    assert (orphan.returncode, orphan.stderr) == (0, b"")
