"""An API server of pods and nodes, played over real sockets: lists in pages, watches, bindings.

What it does with a call can be changed by `before`, so that it fails, or dies, where a test wants.
"""

from __future__ import annotations

import asyncio
import bisect
import contextlib
import json
import ssl
import threading
from collections.abc import Awaitable, Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, unquote, urlsplit

import orjson

Answer = tuple[int, Any]
# Called with (method, path, body) before a call does anything. It returns the answer in its place,
# "drop" to break the connection off, "drop after" to do so when it is done; None lets it through.
Before = Callable[[str, str, Any], Any]
TOKEN = "known"  # whoever comes without it is not answered
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
KINDS = (PODS, NODES, CONFIG_MAPS)


def status(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "status": "Failure", "code": code, "message": message}


class PlayedApi:
    """objects: by path and by name (namespace/name). calls: (method, target) of each so far.

    page: the most objects in one answer. bookmarks: whether watches are told the version, too.
    tls: what it speaks TLS with.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Any]] = {kind: {} for kind in KINDS}
        self.leases: dict[str, dict[str, Any]] = {}  # by path
        self.told: list[Any] = []  # Kubernetes Events
        self.calls: list[tuple[str, str]] = []
        self.before: Before = lambda *_: None
        self.page, self.bookmarks = 10_000, False
        self.tls: ssl.SSLContext | None = None
        # What a kubeconfig says beside: of the server whom to trust, of the user what to show.
        self.trusted: dict[str, str] = {}
        self.shown: dict[str, str] = {}
        self._version = 100
        self._oldest = 0
        self._events: dict[str, list[tuple[int, bytes]]] = {kind: [] for kind in KINDS}
        self._changed = asyncio.Event()
        self._ended: dict[str, int] = dict.fromkeys(KINDS, 0)
        self._loop = asyncio.new_event_loop()
        self._server: asyncio.Server | None = None

    @contextlib.contextmanager
    def running(self) -> Iterator[PlayedApi]:
        self._server = self._loop.run_until_complete(
            asyncio.start_server(self._serve, "127.0.0.1", 0, ssl=self.tls)
        )
        self.port: int = self._server.sockets[0].getsockname()[1]
        thread = threading.Thread(target=self._loop.run_forever)
        thread.start()
        try:
            yield self
        finally:
            asyncio.run_coroutine_threadsafe(self._stop(), self._loop).result(10)
            self._loop.call_soon_threadsafe(self._loop.stop)
            thread.join()
            self._loop.close()

    def kubeconfig(self, path: Any) -> str:
        scheme = "https" if self.tls else "http"
        server = {"server": f"{scheme}://127.0.0.1:{self.port}", **self.trusted}
        cluster = {"name": "c", "cluster": server}
        context = {"name": "x", "context": {"cluster": "c", "user": "u"}}
        user = {"name": "u", "user": {"token": TOKEN, **self.shown}}
        tree = {"clusters": [cluster], "contexts": [context], "users": [user]}
        with open(path, "w") as file:
            json.dump({**tree, "current-context": "x"}, file)
        return str(path)

    def add(self, each: dict[str, Any]) -> None:
        """Before it runs: nobody watches yet."""
        self._put(each)
        for events in self._events.values():
            events.clear()

    def put(self, *objects: dict[str, Any]) -> None:
        self._do(lambda: [self._put(each) for each in objects])

    def delete(self, key: str, kind: str = PODS) -> None:
        self._do(lambda: self._delete(kind, key))

    def pod(self, name: str) -> dict[str, Any]:
        """As it is now."""
        found: dict[str, Any] = self._do(lambda: orjson.loads(orjson.dumps(self._pod(name))))
        return found

    def forget(self) -> None:
        """Who watches is told that what it knows is too old: 410."""

        def do() -> None:
            self._version += 1
            self._oldest = self._version
            self._wake()

        self._do(do)

    def end_watches(self) -> None:
        """Break every watch off."""

        def do() -> None:
            for kind in self._ended:
                self._ended[kind] += 1
            self._wake()

        self._do(do)

    def _do(self, work: Callable[[], Any]) -> Any:
        async def run() -> Any:
            return work()

        return asyncio.run_coroutine_threadsafe(run(), self._loop).result(30)

    async def _stop(self) -> None:
        assert self._server
        self._server.close()
        for task in asyncio.all_tasks() - {asyncio.current_task()}:
            task.cancel()
        await asyncio.sleep(0)

    def _pod(self, name: str) -> Any:
        return self.objects[PODS].get(f"default/{name}")

    def _put(self, each: dict[str, Any]) -> None:
        kind = PODS if "spec" in each else CONFIG_MAPS if "data" in each else NODES
        metadata = each["metadata"]
        key = f"{metadata['namespace']}/{metadata['name']}" if kind == PODS else metadata["name"]
        self._tell("MODIFIED" if key in self.objects[kind] else "ADDED", kind, each)
        self.objects[kind][key] = each

    def _delete(self, kind: str, key: str) -> None:
        self._tell("DELETED", kind, self.objects[kind].pop(key))

    def _tell(self, event: str, kind: str, each: dict[str, Any]) -> None:
        self._version += 1
        each["metadata"]["resourceVersion"] = str(self._version)
        line = orjson.dumps({"type": event, "object": each}) + b"\n"
        self._events[kind].append((self._version, line))
        self._wake()

    def _wake(self) -> None:
        self._changed.set()
        self._changed = asyncio.Event()

    async def _serve(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while head := await reader.readuntil(b"\r\n\r\n"):
                method, target, _ = head.split(b"\r\n", 1)[0].decode().split(" ")
                if b"\r\nauthorization: bearer " + TOKEN.encode() not in head.lower():
                    break
                length = 0
                for line in head.lower().split(b"\r\n")[1:]:
                    if line.startswith(b"content-length:"):
                        length = int(line[15:])
                body = orjson.loads(await reader.readexactly(length)) if length else None
                split = urlsplit(target)
                query = dict(parse_qsl(split.query))
                self.calls.append((method, target))
                if query.get("watch"):
                    await self._watch(split.path, query, writer)
                elif not await self._answer(method, unquote(split.path), query, body, writer):
                    break
        except (asyncio.IncompleteReadError, ConnectionError):
            pass
        finally:
            writer.close()

    async def _answer(
        self, method: str, path: str, query: dict[str, str], body: Any, writer: asyncio.StreamWriter
    ) -> bool:
        """Whether the connection goes on."""
        instead = self.before(method, path, body)
        if isinstance(instead, Awaitable):
            instead = await instead
        if instead == "drop":
            return False
        made = isinstance(instead, tuple)
        code, found = instead if made else self._call(method, path, query, body)
        if instead == "drop after":
            return False
        text = orjson.dumps(found)
        head = f"HTTP/1.1 {code} .\r\nContent-Length: {len(text)}\r\n\r\n"
        writer.write(head.encode() + text)
        return True

    def _call(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        if path in self.objects:
            return self._list(path, query)
        if path.endswith("/events"):
            self.told.append(body)
            return 201, body
        if "/leases" in path:
            return self.lease(method, path, body)
        words = path.split("/")  # /api/v1/namespaces/NS/pods/NAME[/binding]
        pod = self.objects[PODS].get(f"{words[4]}/{words[6]}")
        if pod is None:
            return status(404, f'pods "{words[6]}" not found')
        return self._bind(pod, body) if words[-1] == "binding" else (200, pod)

    def _bind(self, pod: dict[str, Any], binding: Any) -> Answer:
        metadata, uid = pod["metadata"], binding["metadata"]["uid"]
        if metadata["uid"] != uid:
            return status(409, f"Precondition failed: UID in precondition: {uid}")
        if pod["spec"].get("nodeName"):
            return status(409, f"pod {metadata['name']} is already assigned to a node")
        pod["spec"]["nodeName"] = binding["target"]["name"]
        metadata["annotations"] = {**metadata["annotations"], **binding["metadata"]["annotations"]}
        self._tell("MODIFIED", PODS, pod)
        return 201, {"kind": "Status", "status": "Success"}

    def lease(self, method: str, path: str, body: Any) -> Answer:
        if method == "POST":
            path += "/" + body["metadata"]["name"]
        known = self.leases.get(path)
        if method == "GET" or (method == "PUT" and not known):
            return (200, known) if known else status(404, "not found")
        version = (known or {"metadata": {}})["metadata"].get("resourceVersion")
        if body["metadata"].get("resourceVersion") != version:
            return status(409, "the object has been modified")
        self._version += 1
        body["metadata"]["resourceVersion"] = str(self._version)
        self.leases[path] = body
        return 200 if known else 201, body

    def _list(self, kind: str, query: dict[str, str]) -> Answer:
        every, start = list(self.objects[kind].values()), int(query.get("continue", "0"))
        if kind == PODS and "fieldSelector" in query:
            over = ("Succeeded", "Failed")
            every = [pod for pod in every if pod["status"]["phase"] not in over]
        end = start + min(self.page, int(query["limit"]))
        metadata = {"resourceVersion": str(self._version)}
        if end < len(every):
            metadata["continue"] = str(end)
        return 200, {"metadata": metadata, "items": every[start:end]}

    async def _watch(self, kind: str, query: dict[str, str], writer: asyncio.StreamWriter) -> None:
        writer.write(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n")
        seen, ended = int(query["resourceVersion"]), self._ended[kind]
        while ended == self._ended[kind]:
            changed = self._changed
            if seen < self._oldest:
                self._line(writer, {"type": "ERROR", "object": status(410, "too old")[1]})
                break
            events = self._events[kind]
            new = bisect.bisect_right(events, seen, key=lambda event: event[0])
            lines = [b"%x\r\n%s\r\n" % (len(line), line) for _, line in events[new:]]
            writer.write(b"".join(lines))
            seen = self._version
            if self.bookmarks:
                metadata = {"metadata": {"resourceVersion": str(seen)}}
                self._line(writer, {"type": "BOOKMARK", "object": metadata})
            await writer.drain()
            await changed.wait()
        writer.write(b"0\r\n\r\n")

    def _line(self, writer: asyncio.StreamWriter, each: Any) -> None:
        line = orjson.dumps(each) + b"\n"
        writer.write(b"%x\r\n%s\r\n" % (len(line), line))
