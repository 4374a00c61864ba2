"""An API server for kubectl and Helm: kinds, stored objects, refusals."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import parse_qs, urlsplit

import kubernetes_validate

from contract.chart import protobuf_objects
from contract.chart.object_kinds import VERSION, Place, discovered, place

Object = dict[str, Any]
ORDER = "$setElementOrder"
NAMESPACES = ("default", "kube-system")
# swagger: "2.0", and no definitions: a client that would check objects itself leaves that to the
# server.
# Source: gnostic, OpenAPIv2.proto, message Document.
OPENAPI = b"\n\x032.0"
PROTOBUF = "application/com.github.proto-openapi.spec.v2.v1.0+protobuf"


class Refused(Exception):
    def __init__(self, code: int, reason: str, message: str = "") -> None:
        self.code, self.reason, self.message = code, reason, message


class ObjectStore:
    """objects: by path. changes: method and path of each request that would change something."""

    def __init__(self) -> None:
        self.objects: dict[str, Object] = {}
        self.changes: list[tuple[str, str]] = []
        self._made = 0
        self._lock = threading.Lock()
        for name in NAMESPACES:
            self.put({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name}})

    def put(self, *made: Object) -> None:
        """As another client of the cluster does."""
        for each in made:
            plural = each["kind"].lower() + "s"
            root = ("/apis/" if "/" in each["apiVersion"] else "/api/") + each["apiVersion"]
            namespace = each["metadata"].get("namespace")
            place = f"namespaces/{namespace}/{plural}" if namespace else plural
            self.create(f"{root}/{place}", each)

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Its address."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                with store._lock:
                    status, reply = store.answer(self.command, self.path, body)
                kinds: dict[type, str] = {bytes: PROTOBUF, str: "text/plain"}
                kind = kinds.get(type(reply), "application/json")
                text = reply if isinstance(reply, (bytes, str)) else json.dumps(reply)
                data = text if isinstance(text, bytes) else text.encode()
                self.send_response(status)
                self.send_header("Content-Type", kind)
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = answer

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, Any]:
        path, asked = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if method != "GET" and "dryRun" not in asked:
            self.changes.append((method, path))
        if path == "/openapi/v2":
            return 200, OPENAPI
        if resource_list := discovered(path):
            return 200, resource_list
        try:
            if not (named := place(path)):
                raise Refused(404, "NotFound")
            return self._answer(method, named, asked, body)
        except Refused as refused:
            return refused.code, {
                "kind": "Status",
                "apiVersion": "v1",
                "status": "Failure",
                "reason": refused.reason,
                "message": refused.message or refused.reason,
                "code": refused.code,
            }

    def _answer(
        self, method: str, named: Place, asked: dict[str, list[str]], body: bytes
    ) -> tuple[int, Any]:
        if named.sub:
            return self.part(method, named)
        if method == "POST":
            return 201, self.create(named.collection, protobuf_objects.read(body))
        if method == "GET" and not named.name:
            return 200, self._listed(named, asked)
        if named.key not in self.objects:
            raise Refused(404, "NotFound", f'{named.plural} "{named.name}" not found')
        if method == "DELETE":
            return 200, self.delete(named.key)
        old = self.objects[named.key]
        if method == "PUT":
            new = protobuf_objects.read(body)
            identity = {key: old["metadata"].get(key) for key in ("uid", "namespace")}
            self.objects[named.key] = validated(
                {**new, "metadata": {**new["metadata"], **identity}}
            )
        if method == "PATCH":
            self.objects[named.key] = validated(merged(old, json.loads(body)))
        return 200, self.objects[named.key]

    def part(self, method: str, named: Place) -> tuple[int, Any]:
        """What a path below an object's answers."""
        raise Refused(404, "NotFound")

    def delete(self, key: str) -> Object:
        """Delete an object and the objects in it."""
        gone = self.objects.pop(key)
        if gone["kind"] == "Namespace":
            inside = f"/namespaces/{gone['metadata']['name']}/"
            for each in [each for each in self.objects if inside in each]:
                del self.objects[each]
        return gone

    def create(self, collection: str, made: Object) -> Object:
        named = place(collection)
        assert named, collection
        if named.namespace and f"/api/v1/namespaces/{named.namespace}" not in self.objects:
            raise Refused(404, "NotFound", f'namespaces "{named.namespace}" not found')
        key = f"{collection}/{made['metadata']['name']}"
        if key in self.objects:
            raise Refused(409, "AlreadyExists", f"{key} already exists")
        self._made += 1
        if named.namespace:
            made["metadata"]["namespace"] = named.namespace
        made["metadata"]["uid"] = str(self._made)
        self.objects[key] = validated(made)
        return made

    def _listed(self, named: Place, asked: dict[str, list[str]]) -> Object:
        labels, fields = (asked.get(each, [""])[0] for each in ("labelSelector", "fieldSelector"))
        items = [
            each
            for key, each in self.objects.items()
            if (each["apiVersion"], each["kind"]) == (named.version, named.kind)
            and key.startswith(named.collection if named.namespace else "/")
            and selects(labels, each["metadata"].get("labels", {}))
            and selects(fields, Fields(each))
        ]
        kind = {"kind": named.kind + "List", "apiVersion": named.version}
        return {**kind, "metadata": {}, "items": items}


def validated(made: Object) -> Object:
    """Raises Refused: a field that Kubernetes does not know, or not so."""
    try:
        kubernetes_validate.validate(made, VERSION, strict=True)
    except kubernetes_validate.ValidationError as wrong:
        raise Refused(400, "BadRequest", str(wrong)) from None
    return made


class Fields:
    """Of an object, by their paths, as a selector names them."""

    def __init__(self, of: Any) -> None:
        self._of = of

    def get(self, path: str) -> Any:
        found = self._of
        for name in path.split("."):
            found = found.get(name, {})
        return found or None


def selects(selector: str, of: Any) -> bool:
    """Whether it has what a selector of equalities asks for."""
    for each in filter(None, selector.split(",")):
        name, _, wanted = each.replace("!=", "=").replace("==", "=").partition("=")
        if ((of.get(name) or "") == wanted) is ("!=" in each):
            return False
    return True


def merged(old: Any, new: Any) -> Any:
    """As RFC 7396 says, and of lists with named elements what kubectl and Helm say of their
    order. Source: Kubernetes, "Strategic Merge Patch", setElementOrder."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    found = {key: value for key, value in old.items() if key not in new}
    for key, value in new.items():
        directive, _, name = key.partition("/")
        if directive == ORDER and isinstance(value[0], dict):
            (by,) = value[0]
            named = [{each[by]: each for each in of.get(name, [])} for of in (old, new)]
            found[name] = [merged(*(each.get(one[by], {}) for each in named)) for one in value]
        elif f"{ORDER}/{key}" not in new and directive != ORDER and value is not None:
            found[key] = merged(old.get(key), value)
    return found
