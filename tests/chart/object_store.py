"""As much of an API server as kubectl needs to apply manifests: the kinds, and a store."""

from __future__ import annotations

import contextlib
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any
from urllib.parse import urlsplit

# Of each version of a group, its kinds: (what stands in the path, the kind, whether it has a
# namespace). Source: Kubernetes API reference 1.32.
KINDS = {
    "v1": [
        ("namespaces", "Namespace", False),
        ("nodes", "Node", False),
        ("configmaps", "ConfigMap", True),
        ("services", "Service", True),
        ("serviceaccounts", "ServiceAccount", True),
    ],
    "apps/v1": [("daemonsets", "DaemonSet", True), ("deployments", "Deployment", True)],
    "networking.k8s.io/v1": [("networkpolicies", "NetworkPolicy", True)],
    "node.k8s.io/v1": [("runtimeclasses", "RuntimeClass", False)],
    "rbac.authorization.k8s.io/v1": [
        ("clusterroles", "ClusterRole", False),
        ("clusterrolebindings", "ClusterRoleBinding", False),
        ("roles", "Role", True),
        ("rolebindings", "RoleBinding", True),
    ],
    "admissionregistration.k8s.io/v1": [
        ("validatingadmissionpolicies", "ValidatingAdmissionPolicy", False),
        ("validatingadmissionpolicybindings", "ValidatingAdmissionPolicyBinding", False),
    ],
}
VERBS = ["create", "delete", "get", "list", "patch", "update"]


class ObjectStore:
    """objects: by path. changes: method and path of each request that would change something."""

    def __init__(self) -> None:
        self.objects: dict[str, Any] = {}
        self.changes: list[tuple[str, str]] = []

    @contextlib.contextmanager
    def listening(self) -> Iterator[str]:
        """Its address."""
        store = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
                status, said = store.answer(self.command, urlsplit(self.path).path, body)
                data = json.dumps(said).encode()
                self.send_response(status)
                self.send_header("Content-Type", "application/json")
                self.send_header("Content-Length", str(len(data)))
                self.end_headers()
                self.wfile.write(data)

            do_GET = do_POST = do_PATCH = do_DELETE = answer

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

    def answer(self, method: str, path: str, body: bytes) -> tuple[int, Any]:
        if method != "GET":
            self.changes.append((method, path))
        if method == "POST":
            made = json.loads(body)
            key = f"{path}/{made['metadata']['name']}"
            if key in self.objects:
                return 409, status(409, "AlreadyExists")
            made["metadata"]["uid"] = str(len(self.objects))
            self.objects[key] = made
            return 201, made
        if method == "PATCH" and path in self.objects:
            self.objects[path] = merged(self.objects[path], json.loads(body))
            return 200, self.objects[path]
        if method == "DELETE":
            gone = self.objects.pop(path, None)
            return (200, gone) if gone else (404, status(404, "NotFound"))
        said = discovered(path) or self.objects.get(path)
        return (200, said) if said else (404, status(404, "NotFound"))


def discovered(path: str) -> Any:
    if path == "/version":
        return {"major": "1", "minor": "32", "gitVersion": "v1.32.4"}
    if path == "/api":
        return {"kind": "APIVersions", "versions": ["v1"]}
    if path == "/apis":
        groups = [
            {"name": each.partition("/")[0], "versions": [version], "preferredVersion": version}
            for each in KINDS
            if "/" in each
            for version in [{"groupVersion": each, "version": each.partition("/")[2]}]
        ]
        return {"kind": "APIGroupList", "apiVersion": "v1", "groups": groups}
    for version, kinds in KINDS.items():
        if path == ("/apis/" if "/" in version else "/api/") + version:
            resources = [
                {"name": name, "kind": kind, "namespaced": namespaced, "verbs": VERBS}
                for name, kind, namespaced in kinds
            ]
            return {"kind": "APIResourceList", "groupVersion": version, "resources": resources}
    return None


def merged(old: Any, new: Any) -> Any:
    """As RFC 7396 says; kubectl's own form means the same of labels and of a node's spec."""
    if not isinstance(new, dict) or not isinstance(old, dict):
        return new
    kept = {key: value for key, value in old.items() if key not in new}
    changed = {key: merged(old.get(key), value) for key, value in new.items() if value is not None}
    return kept | changed


def status(code: int, reason: str) -> Any:
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "status": "Failure",
        "reason": reason,
        "code": code,
    }
