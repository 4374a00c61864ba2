"""The Kubernetes API, played over a real socket: pods of all nodes, node objects, Events.

It does what Kubernetes 1.32 does with lists and watches (apiserver pkg/storage): one version
counter, field selectors, pages, bookmarks, watches that begin at a version, and 410 for one that
is forgotten. A pod is known by its UID; delete and create of one name are two pods.
"""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import threading
import time
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

from vcuda_hook import syscalls

TOKEN = "s3cret"
# One page of a list has at most so many, whatever is asked, so that tests see pages.
PAGE = 3


class KubeApi:
    """nodes, labels: annotations and labels by node. told: Events by their path. requests: (verb,
    path, query) of each so far. refuse: a status for every request, or 0; refuse_events: of those
    about Events. drop_answers: to so many that create Events."""

    def __init__(self) -> None:
        self.pods: dict[str, dict[str, Any]] = {}
        self.nodes: dict[str, dict[str, Any]] = {}
        self.labels: dict[str, dict[str, Any]] = {}
        self.told: dict[str, dict[str, Any]] = {}
        self.requests: list[tuple[str, str, dict[str, str]]] = []
        self.refuse = self.refuse_events = self.drop_answers = 0
        self.version, self.forgotten = 100, 0
        self._history: list[tuple[int, str, dict[str, Any]]] = []
        self._changed = threading.Condition()
        self._connections: set[Any] = set()
        self._server: ThreadingHTTPServer | None = None
        self.port = 0

    def start(self, certificate: str = "", key: str = "", network_of: int = 0) -> None:
        """certificate, key: files; empty: without TLS. network_of: the process on whose loopback
        device it listens; 0: this one."""
        handler = type("Handler", (_Handler,), {"api": self})

        def listen() -> None:
            if network_of:
                space = os.open(f"/proc/{network_of}/ns/net", os.O_RDONLY | os.O_CLOEXEC)
                syscalls.setns(space)  # of this thread alone
                os.close(space)
            self._server = ThreadingHTTPServer(("127.0.0.1", self.port), handler)

        listening_thread = threading.Thread(target=listen)
        listening_thread.start()
        listening_thread.join()
        assert self._server is not None
        if certificate:
            context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
            context.load_cert_chain(certificate, key)
            listening = self._server.socket
            self._server.socket = context.wrap_socket(listening, server_side=True)
        self.port = self._server.server_port
        threading.Thread(target=self._server.serve_forever, args=(0.05,), daemon=True).start()

    def stop(self) -> None:
        """Away: whoever is connected is cut off. What it knows stays."""
        if self._server is not None:
            self._server.shutdown()
            self._server.server_close()
            self._server = None
            for connection in list(self._connections):
                with contextlib.suppress(OSError):
                    connection.shutdown(2)

    def cut(self) -> None:
        """Every connection breaks; new ones are served."""
        for connection in list(self._connections):
            with contextlib.suppress(OSError):
                connection.shutdown(2)

    @property
    def is_there(self) -> bool:
        return self._server is not None

    def kubeconfig(self, path: str) -> str:
        cluster = {"server": f"http://127.0.0.1:{self.port}"}
        tree = {
            "apiVersion": "v1",
            "kind": "Config",
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "k", "user": "u"}}],
            "clusters": [{"name": "k", "cluster": cluster}],
            "users": [{"name": "u", "user": {"token": TOKEN}}],
        }
        with open(path, "w", encoding="utf-8") as file:
            json.dump(tree, file)  # JSON is YAML
        return path

    def create(
        self,
        name: str,
        containers: dict[str, dict[str, int]],
        *,
        uid: str = "",
        node: str = "node-1",
        annotations: dict[str, Any] | None = None,
        init: dict[str, dict[str, int]] | None = None,
        sidecars: dict[str, dict[str, int]] | None = None,
    ) -> str:
        """A pod that is bound to `node`, of containers that ask for so much; its UID."""

        def listed(asked: dict[str, dict[str, int]] | None, **more: str) -> list[dict[str, Any]]:
            return [
                {"name": name, "resources": {"limits": {k: str(v) for k, v in w.items()}}, **more}
                for name, w in (asked or {}).items()
            ]

        uid = uid or str(uuid.uuid4())
        self.put(
            "ADDED",
            {
                "metadata": {
                    "name": name,
                    "namespace": "default",
                    "uid": uid,
                    "annotations": annotations or {},
                    "creationTimestamp": f"2026-01-01T00:00:00.{self.version:06}Z",
                },
                "spec": {
                    "nodeName": node,
                    "initContainers": listed(sidecars, restartPolicy="Always") + listed(init),
                    "containers": listed(containers),
                },
                "status": {"phase": "Pending"},
            },
        )
        return uid

    def annotate(self, uid: str, **annotations: Any) -> None:
        pod = json.loads(json.dumps(self.pods[uid]))
        pod["metadata"]["annotations"] = annotations
        self.put("MODIFIED", pod)

    def end(self, uid: str, phase: str) -> None:
        pod = json.loads(json.dumps(self.pods[uid]))
        pod["status"]["phase"] = phase
        self.put("MODIFIED", pod)

    def delete(self, uid: str) -> None:
        self.put("DELETED", self.pods[uid])

    def put(self, kind: str, pod: dict[str, Any]) -> None:
        with self._changed:
            self.version += 1
            pod = json.loads(json.dumps(pod))
            pod["metadata"]["resourceVersion"] = str(self.version)
            uid = pod["metadata"]["uid"]
            if kind == "DELETED":
                self.pods.pop(uid)
            else:
                self.pods[uid] = pod
            self._history.append((self.version, kind, pod))
            self._changed.notify_all()

    def bookmark(self) -> None:
        """Watches are told how far they are, though nothing of theirs happened."""
        with self._changed:
            self.version += 1
            pod = {"metadata": {"resourceVersion": str(self.version)}, "spec": {}}
            self._history.append((self.version, "BOOKMARK", pod))
            self._changed.notify_all()

    def forget(self) -> None:
        """Compact: no watch can begin before now."""
        with self._changed:
            self.forgotten = self.version
            self._history.clear()

    def listed(self, query: dict[str, str]) -> tuple[int, dict[str, Any]]:
        if query.get("continue") == "expired":
            return 410, {"kind": "Status", "code": 410}
        found = [pod for pod in self.pods.values() if _selected(pod, query)]
        begin = int(query.get("continue") or 0)
        end = begin + min(PAGE, int(query.get("limit") or PAGE))
        metadata = {"resourceVersion": str(self.version)}
        if end < len(found):
            metadata["continue"] = str(end)
        return 200, {"kind": "PodList", "metadata": metadata, "items": found[begin:end]}

    def events_after(self, version: int) -> list[tuple[int, str, dict[str, Any]]] | None:
        """Waits for some; None: that version is forgotten."""
        with self._changed:
            if version < self.forgotten:
                return None
            self._changed.wait_for(lambda: self.version > version or version < self.forgotten, 0.2)
            return [event for event in self._history if event[0] > version]


def _selected(pod: dict[str, Any], query: dict[str, str]) -> bool:
    field, _, value = query.get("fieldSelector", "").partition("=")
    return field != "spec.nodeName" or pod["spec"].get("nodeName") == value


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    api: KubeApi
    _body: Any

    def setup(self) -> None:
        super().setup()
        self.api._connections.add(self.connection)

    def handle(self) -> None:
        with contextlib.suppress(ConnectionError):
            super().handle()

    def finish(self) -> None:
        self.api._connections.discard(self.connection)
        with contextlib.suppress(OSError):
            super().finish()

    def do_GET(self) -> None:
        query = self._begin()
        if query is None:
            return
        if query.get("watch") != "true":
            self._answer(*self.api.listed(query))
            return
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Transfer-Encoding", "chunked")
        self.end_headers()
        with contextlib.suppress(OSError):
            self._watch(query)
            self.wfile.write(b"0\r\n\r\n")

    def do_POST(self) -> None:
        """An Event, as the API takes one. Source: k8s.io/kubernetes, legacyValidateEvent."""
        if self._begin() is None:
            return
        assert self.headers["Content-Type"] == "application/json"
        body, folder = self._body, self.path.partition("?")[0]
        path = f"{folder}/{body['metadata']['name']}"
        about = body["involvedObject"]
        assert folder == f"/api/v1/namespaces/{about['namespace']}/events"
        assert about["namespace"] == body["metadata"]["namespace"]
        status = 409 if path in self.api.told else 201
        self.api.told.setdefault(path, body)
        if self.api.drop_answers:
            self.api.drop_answers -= 1
            self.connection.shutdown(2)
        else:
            self._answer(status, body)

    def do_PATCH(self) -> None:
        query = self._begin()
        if query is None:
            return
        assert self.headers["Content-Type"] == "application/merge-patch+json"
        body, path = self._body, self.path.partition("?")[0]
        if "/events/" in path:
            known = self.api.told.get(path)
            if known is not None:
                known.update(body)
            self._answer(404 if known is None else 200, known or {"kind": "Status"})
            return
        name = path.rpartition("/")[2]
        self.api.nodes.setdefault(name, {}).update(body["metadata"]["annotations"])
        labels = self.api.labels.setdefault(name, {})
        labels.update(body["metadata"].get("labels", {}))
        for key in [key for key, value in labels.items() if value is None]:
            del labels[key]
        self._answer(200, {"kind": "Node"})

    def _begin(self) -> dict[str, str] | None:
        parts = urlsplit(self.path)
        self._body = json.loads(self.rfile.read(int(self.headers["Content-Length"] or 0)) or "{}")
        query = {key: values[0] for key, values in parse_qs(parts.query).items()}
        verb = "WATCH" if query.get("watch") == "true" else self.command
        self.api.requests.append((verb, parts.path, query))
        scheme, _, token = (self.headers["Authorization"] or "").partition(" ")
        known = (scheme.lower(), token) == ("bearer", TOKEN)
        refuse = self.api.refuse or ("/events" in parts.path and self.api.refuse_events)
        status = refuse or (200 if known else 401)
        if status != 200:
            self._answer(status, {"kind": "Status", "code": status})
            return None
        return query

    def _answer(self, status: int, tree: dict[str, Any]) -> None:
        body = json.dumps(tree).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def _watch(self, query: dict[str, str]) -> None:
        version = int(query["resourceVersion"])
        deadline = time.monotonic() + float(query["timeoutSeconds"])
        while time.monotonic() < deadline and self.api._server is not None:
            found = self.api.events_after(version)
            if found is None:
                self._send("ERROR", {"kind": "Status", "code": 410, "message": "too old"})
                return
            for at, kind, pod in found:
                version = at
                if kind == "BOOKMARK" or _selected(pod, query):
                    self._send(kind, pod)

    def _send(self, kind: str, told: dict[str, Any]) -> None:
        line = json.dumps({"type": kind, "object": told}).encode() + b"\n"
        self.wfile.write(b"%x\r\n%s\r\n" % (len(line), line))
        self.wfile.flush()

    def log_message(self, *arguments: Any) -> None:
        pass
