"""A fake API server for tests of a node: pods by their UID, node objects, Events."""

from __future__ import annotations

import uuid
from typing import Any

from support.api_server.fake_api_server import NODES, PODS, TOKEN, FakeApiServer, status

__all__ = ["TOKEN", "KubeApi"]
# The most objects in one page of a list, whatever the client asks for, so that tests see pages.
PAGE = 3


class KubeApi(FakeApiServer):
    """refuse_events: the HTTP status for every request about Events, or 0 to serve them.
    drop_answers: how many requests to create Events get no answer."""

    def __init__(self, *nodes: str) -> None:
        """nodes: names of the node objects; default: node-1."""
        super().__init__()
        self.page, self.before = PAGE, self._before
        self.refuse_events = self.drop_answers = 0
        self._names = nodes or ("node-1",)
        self.clear_nodes()

    def clear_nodes(self) -> None:
        """Remove the annotations of all node objects."""
        self.put(*[{"metadata": {"name": name}} for name in self._names])

    @property
    def pods(self) -> dict[str, dict[str, Any]]:
        """Pods by UID."""
        with self.lock:
            return {each["metadata"]["uid"]: each for each in self.objects[PODS].values()}

    @property
    def nodes(self) -> dict[str, dict[str, str]]:
        """Annotations of each node that has some."""
        return self._said("annotations")

    @property
    def labels(self) -> dict[str, dict[str, str]]:
        return self._said("labels")

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
        owner: tuple[str, str] | None = None,
    ) -> str:
        """Create a pod bound to `node`; return its UID. An existing pod of that name is deleted.

        containers, init, sidecars: by container name, the amount of each resource. owner: kind and
        name of its controller.
        """

        def listed(asked: dict[str, dict[str, int]] | None, **more: str) -> list[dict[str, Any]]:
            return [
                {"name": name, "resources": {"limits": {k: str(v) for k, v in w.items()}}, **more}
                for name, w in (asked or {}).items()
            ]

        uid = uid or str(uuid.uuid4())
        pod = {
            "metadata": {
                "name": name,
                "namespace": "default",
                "uid": uid,
                "annotations": annotations or {},
                "creationTimestamp": f"2026-01-01T00:00:00.{self.version:06}Z",
                "ownerReferences": [
                    {"kind": each[0], "name": each[1], "controller": True}
                    for each in [owner]
                    if each
                ],
            },
            "spec": {
                "nodeName": node,
                "initContainers": listed(sidecars, restartPolicy="Always") + listed(init),
                "containers": listed(containers),
            },
            "status": {"phase": "Pending"},
        }
        if f"default/{name}" in self.objects[PODS]:
            super().delete(f"default/{name}")
        self.put(pod)
        return uid

    def annotate(self, uid: str, **annotations: Any) -> None:
        pod = self.pods[uid]
        self.put({**pod, "metadata": {**pod["metadata"], "annotations": annotations}})

    def end(self, uid: str, phase: str) -> None:
        self.put({**self.pods[uid], "status": {"phase": phase}})

    def delete(self, key: str, kind: str = PODS) -> None:
        """key: for a pod, its UID."""
        if kind == PODS:
            key = f"default/{self.pods[key]['metadata']['name']}"
        super().delete(key, kind)

    def _said(self, field: str) -> dict[str, dict[str, str]]:
        with self.lock:
            nodes = list(self.objects[NODES].items())
        return {name: each["metadata"][field] for name, each in nodes if field in each["metadata"]}

    def _before(self, method: str, path: str, body: Any) -> Any:
        if "/events" in path and self.refuse_events:
            return status(self.refuse_events, "refused")
        if "/events" in path and method == "POST" and self.drop_answers:
            self.drop_answers -= 1
            return "drop after"
        return None
