"""The extender's caller in the bench, in a process of its own that measures its own use."""

from __future__ import annotations

import socket
import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import orjson

CALLERS = 4


class Called(NamedTuple):
    """milliseconds: of each call or pair, as the caller saw it. used: of the extender's main
    thread, CPU for each call. seconds: of all. cpu: this process's seconds."""

    milliseconds: list[float]
    used: list[float]
    seconds: float
    cpu: float


def filters(port: int, pid: int, bodies: Sequence[bytes], times: int) -> Called:
    """Each body in turn, `times` in all. pid: of the extender."""
    requests = [_request("predicates", body) for body in bodies]
    with socket.create_connection(("127.0.0.1", port), 60) as connection:
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        took, used = list[float](), list[float]()
        began, cpu = time.perf_counter(), time.process_time()
        for number in range(times):
            before, start = _processor(pid), time.perf_counter()
            _answer(connection, requests[number % len(requests)])
            took.append((time.perf_counter() - start) * 1e3)
            used.append((_processor(pid) - before) * 1e3)
    return Called(took, used, time.perf_counter() - began, time.process_time() - cpu)


def pairs(port: int, pods: Sequence[dict[str, Any]], names: Sequence[Sequence[str]]) -> Called:
    """Each pod filtered over its `names` and bound to the first that fits, by `CALLERS` at a time.

    Raises AssertionError: a pod was not bound.
    """
    asked = [
        _request("predicates", orjson.dumps({"Pod": pod, "NodeNames": chosen}))
        for pod, chosen in zip(pods, names)
    ]
    took, failures = [0.0] * len(pods), list[str]()

    def call(first: int) -> None:
        with socket.create_connection(("127.0.0.1", port), 60) as connection:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
            for number in range(first, len(pods), CALLERS):
                start = time.perf_counter()
                found = orjson.loads(_answer(connection, asked[number]))["NodeNames"]
                metadata = pods[number]["metadata"]
                wanted = {"PodName": metadata["name"], "PodNamespace": metadata["namespace"]}
                body = orjson.dumps({**wanted, "PodUID": metadata["uid"], "Node": found[0]})
                error = orjson.loads(_answer(connection, _request("bind", body)))["Error"]
                failures.extend([error] if error else [])
                took[number] = (time.perf_counter() - start) * 1e3

    callers = [threading.Thread(target=call, args=(first,)) for first in range(CALLERS)]
    began, cpu = time.perf_counter(), time.process_time()
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    seconds, used = time.perf_counter() - began, time.process_time() - cpu
    assert not failures, failures[:3]
    assert all(took)
    return Called(took, [], seconds, used)


def _processor(pid: int) -> float:
    """Seconds that its main thread has used so far."""
    with open(f"/proc/{pid}/schedstat") as file:
        return int(file.read().split()[0]) / 1e9


def _request(verb: str, body: bytes) -> bytes:
    head = f"POST /scheduler/{verb} HTTP/1.1\r\nHost: localhost\r\n"
    head += f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    return head.encode() + body


def _answer(connection: socket.socket, request: bytes) -> bytes:
    """The body that came with 200."""
    connection.sendall(request)
    had = connection.recv(1 << 18)
    while b"\r\n\r\n" not in had:
        had += connection.recv(1 << 18)
    head, _, body = had.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 200 "), head
    length = int(head.lower().partition(b"content-length:")[2].partition(b"\r\n")[0])
    pieces = [body]
    while (missing := length - sum(map(len, pieces))) > 0:
        pieces.append(connection.recv(missing))
    return b"".join(pieces)
