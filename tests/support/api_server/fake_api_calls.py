"""The calls of a fake API server: bindings, Events, Leases, merge patches."""

from __future__ import annotations

import time
from typing import Any

from support.api_server.fake_api_objects import (
    CLAIMS,
    LEASES,
    NODES,
    PODS,
    SLICES,
    TEMPLATES,
    Answer,
    FakeApiObjects,
    Object,
    status,
)

JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
APPLY_PATCH = "application/apply-patch+yaml"
TOKEN_REVIEWS = "/apis/authentication.k8s.io/v1/tokenreviews"
ACCESS_REVIEWS = "/apis/authorization.k8s.io/v1/subjectaccessreviews"


class FakeApiCalls(FakeApiObjects):
    """recorded_events: Kubernetes Events by path. leases: Leases by path.

    users: the user of each token, as a TokenReview names it. may_list: (user or group, resource,
    namespace); namespace "": in all.

    relation_seconds: how long after a claim's allocation the node authorizer refuses it to the
    caller, a node. Its graph follows the objects by watches of its own. Source: Kubernetes 1.36,
    plugin/pkg/auth/authorizer/node.

    dropped: fields of ResourceSlices' devices that it does not store.
    """

    def __init__(self) -> None:
        super().__init__()
        self.recorded_events: dict[str, Object] = {}
        self.leases: dict[str, Object] = {}
        self.users: dict[str, Object] = {}
        self.may_list: set[tuple[str, str, str]] = set()
        self.relation_seconds = 0.0
        self.dropped: tuple[str, ...] = ()
        self._allocated: dict[str, float] = {}

    def call(
        self, method: str, path: str, query: dict[str, str], body: Any, kind: str = JSON
    ) -> Answer:
        """Apply one call completely or not at all. kind: the body's content type."""
        if kind not in ((MERGE_PATCH, APPLY_PATCH) if method == "PATCH" else (JSON, "")):
            return status(415, f"the body of the request was in an unknown format: {kind}")
        with self.lock:
            if method == "GET" and path in self.objects:
                return self.list(path, query)
            if method == "POST" and path in (TOKEN_REVIEWS, ACCESS_REVIEWS):
                review = self._token if path == TOKEN_REVIEWS else self._access
                return 201, {**body, "status": review(body["spec"])}
            # Those of extenders have no labels, and no watch.
            labelled = method == "POST" and "labels" in body["metadata"]
            if path.startswith(LEASES) and (labelled or method == "PATCH"):
                name = path[len(LEASES) + 1 :] or body["metadata"]["name"]
                if method == "POST":
                    self.set(LEASES, name, body)
                return self._named(method, LEASES, name, body)
            if "/leases" in path:
                return self.lease(method, path, body)
            if "/events" in path:
                return self._event(method, path, query, body)
            if path.startswith(SLICES):
                return self._slice(method, path[len(SLICES) + 1 :], body)
            if "/resourceclaims/" in path:
                words = path.split("/")
                return self._claim(method, f"{words[5]}/{words[7]}", body)
            if path.endswith("/resourceclaimtemplates") and method == "POST":
                return self._template(path.split("/")[5], body)
            # /api/v1/nodes/NAME, /api/v1/namespaces/NAMESPACE/pods/NAME[/binding]
            words = path.split("/")
            if path.startswith(NODES + "/"):
                return self._named(method, NODES, words[4], body)
            if len(words) == 6 and words[5] == "pods" and method == "GET":
                in_namespace = f"metadata.namespace={words[4]},{query.get('fieldSelector', '')}"
                return self.list(PODS, {**query, "fieldSelector": in_namespace})
            if len(words) in (7, 8) and words[5] == "pods":
                key = f"{words[4]}/{words[6]}"
                if words[7:] == ["binding"] and method == "POST":
                    return self._bind(key, body)
                if words[7:] == ["eviction"] and method == "POST":
                    return self._evict(key, body)
                return self._named(method, PODS, key, body)
        return status(404, f"the server could not find the requested resource: {path}")

    def _token(self, spec: Any) -> Object:
        user = self.users.get(spec["token"])
        if user is None:
            return {"user": {}, "error": "[invalid bearer token]"}
        return {"authenticated": True, "user": user, "audiences": ["https://kubernetes.default"]}

    def _access(self, spec: Any) -> Object:
        asked, names = spec["resourceAttributes"], (spec["user"], *spec.get("groups", ()))
        places = {asked.get("namespace", ""), ""}
        wanted = {(name, asked["resource"], place) for name in names for place in places}
        return {"allowed": asked["verb"] == "list" and bool(wanted & self.may_list)}

    def lease(self, method: str, path: str, body: Any) -> Answer:
        if method == "POST":
            path += "/" + body["metadata"]["name"]
        known = self.leases.get(path)
        if method == "GET" or (method == "PUT" and not known):
            return (200, known) if known else status(404, "not found")
        version = (known or {"metadata": {}})["metadata"].get("resourceVersion")
        if body["metadata"].get("resourceVersion") != version:
            return status(409, "the object has been modified")
        self.version += 1
        body["metadata"]["resourceVersion"] = str(self.version)
        self.leases[path] = body
        return 200 if known else 201, body

    def _slice(self, method: str, name: str, body: Any) -> Answer:
        """Source: Kubernetes 1.36, pkg/apis/resource/validation, and the generic registry."""
        known = self.objects[SLICES].get(name)
        for device in ((body or {}).get("spec") or {}).get("devices", ()):
            for field in self.dropped:
                device.pop(field, None)
        if method == "POST":
            if body["metadata"]["name"] in self.objects[SLICES]:
                return status(409, f'resourceslices "{body["metadata"]["name"]}" already exists')
            self.set(SLICES, body["metadata"]["name"], body)
            return 201, body
        if known is None:
            return status(404, f'resourceslices "{name}" not found')
        if method == "DELETE":
            self.delete(name, SLICES)
            return 200, {"kind": "Status", "status": "Success"}
        if method == "PATCH":
            version = body["metadata"].get("resourceVersion", known["metadata"]["resourceVersion"])
            if version != known["metadata"]["resourceVersion"]:
                return status(409, "the object has been modified")
            self.set(SLICES, name, merged(known, body))
        return 200, self.objects[SLICES][name]

    def _claim(self, method: str, key: str, body: Any) -> Answer:
        began = self._allocated.setdefault(key, time.monotonic())
        if began + self.relation_seconds > time.monotonic():
            why = "no relationship found between node 'node-1' and this object"
            return status(403, f'resourceclaims "{key.rpartition("/")[2]}" is forbidden: {why}')
        return self._named(method, CLAIMS, key, body)

    def _template(self, namespace: str, body: Any) -> Answer:
        key = f"{namespace}/{body['metadata']['name']}"
        if key in self.objects[TEMPLATES]:
            return status(409, f'resourceclaimtemplates "{key}" already exists')
        self.set(TEMPLATES, key, merged(body, {"metadata": {"uid": f"uid-{self.version}"}}))
        return 201, self.objects[TEMPLATES][key]

    def _named(self, method: str, kind: str, key: str, body: Any) -> Answer:
        known = self.objects[kind].get(key)
        if known is None:
            name = key.rpartition("/")[2]
            return status(404, f'{kind.rpartition("/")[2]} "{name}" not found')
        if method == "PATCH":
            self.set(kind, key, merged(known, body))
        return 200, self.objects[kind][key]

    def _evict(self, key: str, eviction: Any) -> Answer:
        """The pod ends at once."""
        pod, uid = self.objects[PODS].get(key), eviction["deleteOptions"]["preconditions"]["uid"]
        if pod is None:
            return status(404, f'pods "{key.partition("/")[2]}" not found')
        if pod["metadata"]["uid"] != uid:
            return status(409, f"Precondition failed: UID in precondition: {uid}")
        FakeApiObjects.delete(self, key)
        return 201, {"kind": "Status", "status": "Success"}

    def _bind(self, key: str, binding: Any) -> Answer:
        pod = self.objects[PODS].get(key)
        if pod is None:
            return status(404, f'pods "{key.partition("/")[2]}" not found')
        metadata, uid = pod["metadata"], binding["metadata"]["uid"]
        if metadata["uid"] != uid:
            return status(409, f"Precondition failed: UID in precondition: {uid}")
        if pod["spec"].get("nodeName"):
            return status(409, f"pod {metadata['name']} is already assigned to a node")
        more = {
            "metadata": {"annotations": binding["metadata"]["annotations"]},
            "spec": {"nodeName": binding["target"]["name"]},
        }
        self.set(PODS, key, merged(pod, more))
        return 201, {"kind": "Status", "status": "Success"}

    def _event(self, method: str, path: str, query: dict[str, str], body: Any) -> Answer:
        """Source: k8s.io/kubernetes, pkg/apis/core/validation, legacyValidateEvent."""
        if method == "PATCH":
            if path not in self.recorded_events:
                return status(404, "not found")
            self.recorded_events[path] = merged(self.recorded_events[path], body)
            return 200, self.recorded_events[path]
        if method == "GET":
            return self._list_events(path, query)
        metadata, namespace = body["metadata"], path.split("/")[4]
        if not body["involvedObject"]["namespace"] == metadata["namespace"] == namespace:
            return status(422, "involvedObject.namespace: does not match event.namespace")
        self.version += 1
        name = metadata.get("name") or f"{metadata['generateName']}{self.version:05x}"
        if f"{path}/{name}" in self.recorded_events:
            return status(409, f'events "{name}" already exists')
        self.recorded_events[f"{path}/{name}"] = merged(body, {"metadata": {"name": name}})
        return 201, self.recorded_events[f"{path}/{name}"]

    def _list_events(self, path: str, query: dict[str, str]) -> Answer:
        """Events of one namespace or of all, of the object that the selector names."""
        terms = [term.split("=") for term in query.get("fieldSelector", "").split(",") if term]
        wanted = {key.removeprefix("involvedObject."): value for key, value in terms}
        place = path.removesuffix("/events").removeprefix("/api/v1")
        items = [
            event
            for key, event in self.recorded_events.items()
            if place in key and wanted.items() <= event["involvedObject"].items()
        ]
        return 200, {"kind": "EventList", "apiVersion": "v1", "metadata": {}, "items": items}


def merged(known: Any, patch: Any) -> Any:
    """A JSON merge patch. Source: RFC 7386, 2."""
    if not isinstance(patch, dict):
        return patch
    found = dict(known) if isinstance(known, dict) else {}
    for key, value in patch.items():
        if value is None:
            found.pop(key, None)
        else:
            found[key] = merged(found.get(key), value)
    return found
