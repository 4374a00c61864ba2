"""A fake API server over real sockets: lists in pages, watches, bindings, Events, Leases.

kmock 0.8 lacks what is tested here. Seen with the official client: its lists have the
resourceVersion "..." and neither pages nor selectors; its watches begin with every object, whatever
version the client asks for, and lack 410, bookmarks and timeoutSeconds; it has neither PUT nor
pods/binding. tests/contract/agent/pods/test_pod_watch_kmock.py uses what it has.

A test sets `before` to make a call fail, or to kill the caller, at a certain point. It sets
`applied` to make an answer later than the watch's event of the same call, as a real one may be.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import socket
import ssl
import threading
import time
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

from support.api_server.fake_api_calls import FakeApiCalls
from support.api_server.fake_api_objects import CONFIG_MAPS, NODES, PODS, status
from vcuda_hook.hooks import syscalls

__all__ = ["CONFIG_MAPS", "NODES", "PODS", "TOKEN", "FakeApiServer", "status"]

# Called with (method, path, body) before a call is applied. It returns an answer to send instead;
# "drop" to close the connection, "drop after" to apply the call and then close; None to go on.
Before = Callable[[str, str, Any], Any]
# Called with (method, path) after a call is applied. What it returns is awaited before the answer.
Applied = Callable[[str, str], "Awaitable[None] | None"]
TOKEN = "s3cret"  # a client without it is refused


class FakeApiServer(FakeApiCalls):
    """requests: (method, path, query) of each request so far; the method of a watch is "WATCH", the
    path of a proxied request is its whole address. refuse: the status for every request, watches
    too; 0 to serve them.

    tls: the server's TLS settings. late_seconds: by how much every watch is late: the caller of the
    extender, kube-scheduler, has a watch of its own and may know of a change sooner.
    """

    def __init__(self) -> None:
        super().__init__()
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.before: Before = lambda *_: None
        self.applied: Applied = lambda *_: None
        self.refuse = self.port = 0
        self.late_seconds = 0.0
        self.tls: ssl.SSLContext | None = None
        # More entries of the kubeconfig: the server's CA, the user's certificate.
        self.trusted: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self._loop: asyncio.AbstractEventLoop | None = None
        self._writers: set[asyncio.StreamWriter] = set()
        self._ended = 0

    @contextlib.contextmanager
    def running(self) -> Iterator[FakeApiServer]:
        self.start()
        try:
            yield self
        finally:
            self.stop()

    def start(self, certificate: str = "", key: str = "", network_of: int = 0) -> None:
        """Listen, on the same port as before if it ran before.

        certificate, key: files; empty: use `tls`. network_of: the process with the
        network namespace to listen in; 0: the caller's.
        """
        if certificate:
            self.tls = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            self.tls.load_cert_chain(certificate, key)
        listening = self._listen(network_of)
        self.port = listening.getsockname()[1]
        self._loop, self._changed = asyncio.new_event_loop(), asyncio.Event()
        starting = asyncio.start_server(self._serve, sock=listening, ssl=self.tls)
        self._server = self._loop.run_until_complete(starting)
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Close the socket and all connections. The objects stay."""
        loop, self._loop = self._loop, None
        if loop:
            asyncio.run_coroutine_threadsafe(self._stop(), loop).result(10)
            loop.call_soon_threadsafe(loop.stop)
            self._thread.join()
            loop.close()

    @property
    def is_there(self) -> bool:
        return self._loop is not None

    def cut(self) -> None:
        """Close every connection; new ones are served."""
        self._do(lambda: [writer.close() for writer in self._writers])
        self.end_watches()

    def end_watches(self) -> None:
        """End every watch, as the API server does after a while."""
        self._ended += 1
        self.wake()

    def wake(self) -> None:
        if self._loop:
            self._loop.call_soon_threadsafe(self._wake)

    def kubeconfig(self, path: Any) -> str:
        scheme = "https" if self.tls else "http"
        server = {"server": f"{scheme}://127.0.0.1:{self.port}", **self.trusted}
        cluster = {"name": "c", "cluster": server}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": TOKEN, **self.shown}}
        tree = {"clusters": [cluster], "contexts": [context], "users": [user]}
        with open(path, "w") as file:
            json.dump({**tree, "current-context": "x"}, file)  # JSON is YAML
        return str(path)

    def _listen(self, network_of: int) -> socket.socket:
        if not network_of:
            return socket.create_server(("127.0.0.1", self.port))
        found = []

        def listen() -> None:
            space = os.open(f"/proc/{network_of}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
            syscalls.setns(space)  # of this thread alone
            os.close(space)
            found.append(self._listen(0))

        thread = threading.Thread(target=listen)
        thread.start()
        thread.join()
        return found[0]

    def _do(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return (
            asyncio.run_coroutine_threadsafe(run(), self._loop).result(30) if self._loop else None
        )

    async def _stop(self) -> None:
        self._server.close()
        for writer in self._writers:
            writer.transport.abort()
        tasks = asyncio.all_tasks() - {asyncio.current_task()}
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self._writers.add(writer)
        try:
            while await self._request(reader, writer):
                pass
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            self._writers.discard(writer)
            writer.close()

    async def _request(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> bool:
        """Serve one request; return whether the connection stays open."""
        first, *lines = (await reader.readuntil(b"\r\n\r\n")).decode().split("\r\n")
        method, target, _ = first.split(" ")
        headers = {key.lower(): value for key, _, value in (each.partition(": ") for each in lines)}
        length = int(headers.get("content-length", 0))
        split = urlsplit(target)
        query = dict(parse_qsl(split.query))
        watch = query.get("watch") == "true"
        scheme, _, token = headers.get("authorization", "").partition(" ")
        refused = self.refuse or (401 if (scheme.lower(), token) != ("bearer", TOKEN) else 0)
        # Go's net/http sends 100 Continue only if the handler reads the body.
        waits = headers.get("expect") == "100-continue"
        came = time.monotonic()
        if waits and not refused:
            writer.write(b"HTTP/1.1 100 Continue\r\n\r\n")
        unread = waits and refused
        body = orjson.loads(await reader.readexactly(length)) if length and not unread else None
        self.requests.append(("WATCH" if watch else method, target.partition("?")[0], query))
        if refused:
            self._answer(writer, *status(refused, "refused"))
            return not unread
        if time.monotonic() - came > float(query.get("timeout", "60s").removesuffix("s")):
            # Source: apiserver, pkg/endpoints/filters/request_deadline.go.
            self._answer(writer, *status(504, "request did not complete within requested timeout"))
            return True
        if watch:
            await self._watch(split.path, query, writer)
            return True
        path = unquote(split.path)
        instead = self.before(method, path, body)
        if isinstance(instead, Awaitable):
            instead = await instead
        if instead == "drop":
            return False
        if not isinstance(instead, tuple):
            kind = headers.get("content-type", "").partition(";")[0]
            answer = self.call(method, path, query, body, kind)
            if (waits_for := self.applied(method, path)) is not None:
                await waits_for
            if instead == "drop after":
                return False
            instead = answer
        self._answer(writer, *instead)
        return True

    def _answer(self, writer: asyncio.StreamWriter, code: int, found: Any) -> None:
        text = orjson.dumps(found)
        kind = "Content-Type: application/json\r\n"
        head = f"HTTP/1.1 {code} .\r\n{kind}Content-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)

    async def _watch(self, kind: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        head = "Content-Type: application/json\r\nTransfer-Encoding: chunked\r\n\r\n"
        writer.write(b"HTTP/1.1 200 OK\r\n" + head.encode())
        seen, ended = int(query["resourceVersion"]), self._ended
        until = time.monotonic() + float(query.get("timeoutSeconds", 3600))
        while ended == self._ended and (left := until - time.monotonic()) > 0:
            changed, found = self._changed, self.events(kind, query, seen)
            if found is None:
                gone = {"type": "ERROR", "object": status(410, "too old resource version")[1]}
                self._chunk(writer, orjson.dumps(gone) + b"\n")
                break
            seen, lines = found
            if lines:
                await asyncio.sleep(self.late_seconds)
                self._chunk(writer, b"".join(lines))
            await writer.drain()
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(changed.wait(), left)
        self._chunk(writer, b"")

    def _chunk(self, writer: asyncio.StreamWriter, text: bytes) -> None:
        writer.write(b"%x\r\n%b\r\n" % (len(text), text))
