"""The objects of a fake API server and the events that its watches receive, without I/O.

It follows Kubernetes 1.32 (apiserver, pkg/storage): one version counter, lists in pages, field
selectors, watches from a version on, bookmarks, and 410 for a version that was compacted.
"""

from __future__ import annotations

import bisect
import functools
import threading
from collections.abc import Sequence
from typing import Any

import orjson

Answer = tuple[int, Any]
Object = dict[str, Any]
PODS, NODES = "/api/v1/pods", "/api/v1/nodes"
CONFIG_MAPS = "/api/v1/namespaces/kube-system/configmaps"
SLICES = "/apis/resource.k8s.io/v1/resourceslices"
CLAIMS = "/apis/resource.k8s.io/v1/resourceclaims"
TEMPLATES = "/apis/resource.k8s.io/v1/resourceclaimtemplates"
# Of the node agents.
LEASES = "/apis/coordination.k8s.io/v1/namespaces/vcuda/leases"
KINDS = (PODS, NODES, CONFIG_MAPS, SLICES, CLAIMS, TEMPLATES, LEASES)


def status(code: int, message: str) -> Answer:
    return code, {"kind": "Status", "status": "Failure", "code": code, "message": message}


class FakeApiObjects:
    """objects: by path and by name, of pods namespace/name. page: the most objects in one answer.

    Every method may be called from any thread, and copies its arguments.
    """

    def __init__(self) -> None:
        self.objects: dict[str, dict[str, Object]] = {kind: {} for kind in KINDS}
        self.page, self.version = 10_000, 100
        self.lock = threading.RLock()
        self._oldest = 0
        # (version, object before, object after, the event's object as JSON); None for a bookmark.
        self._history: dict[str, list[tuple[int, Object | None, Object | None, bytes]]] = {
            kind: [] for kind in KINDS
        }

    def add(self, each: Object) -> None:
        """Add an object before the server runs, so without an event for watches."""
        self.put(each)
        for history in self._history.values():
            history.clear()

    def put(self, *objects: Object) -> None:
        with self.lock:
            for each in objects:
                kind = PODS if "spec" in each else CONFIG_MAPS if "data" in each else NODES
                self.set(kind, _key(kind, each["metadata"]), orjson.loads(orjson.dumps(each)))

    def set(self, kind: str, key: str, each: Object) -> None:
        """Store `each`, which the caller must not change any more."""
        with self.lock:
            self._tell(kind, self.objects[kind].get(key), each)
            self.objects[kind][key] = each

    def delete(self, key: str, kind: str = PODS) -> None:
        with self.lock:
            self._tell(kind, self.objects[kind].pop(key), None)

    def pod(self, name: str) -> Object:
        """A copy of the pod as it is now."""
        with self.lock:
            found: Object = orjson.loads(orjson.dumps(self.objects[PODS][f"default/{name}"]))
        return found

    def bookmark(self) -> None:
        """Send a bookmark to every watch."""
        with self.lock:
            self.version += 1
            text = orjson.dumps({"metadata": {"resourceVersion": str(self.version)}})
            for history in self._history.values():
                history.append((self.version, None, None, text))
        self.wake()

    def forget(self) -> None:
        """Compact the history: a watch from an older version gets 410."""
        with self.lock:
            self.version += 1
            self._oldest = self.version
            for history in self._history.values():
                history.clear()
        self.wake()

    def wake(self) -> None:
        """Called after each change."""

    def list(self, kind: str, query: dict[str, str]) -> Answer:
        with self.lock:
            version, _, start = query.get("continue", f"{self.version}:0").partition(":")
            if int(version) < self._oldest:
                return status(410, "The provided continue parameter is too old")
            found = [
                each for each in self.objects[kind].values() if _selected(each, _selector(query))
            ]
            begin = int(start)
            end = begin + min(self.page, int(query.get("limit", self.page)))
            metadata = {"resourceVersion": version}
            if end < len(found):
                metadata["continue"] = f"{version}:{end}"
            return 200, {"kind": "List", "metadata": metadata, "items": found[begin:end]}

    def events(
        self, kind: str, query: dict[str, str], seen: int
    ) -> tuple[int, Sequence[bytes]] | None:
        """Return the newest version, and the lines for a watch since `seen`; None if compacted.

        As in the API server, a watch gets DELETED for an object that its selector stops matching.
        """
        with self.lock:
            if seen < self._oldest:
                return None
            history, selector, lines = self._history[kind], _selector(query), []
            for _, was, now, text in history[bisect.bisect(history, seen, key=lambda e: e[0]) :]:
                before, after = (_selected(each, selector) for each in (was, now))
                if was is now is None:
                    event = "BOOKMARK" if query.get("allowWatchBookmarks") == "true" else ""
                else:
                    event = ("MODIFIED" if before else "ADDED") if after else "DELETED" * before
                if event:
                    lines.append(b'{"type":"%b","object":%b}\n' % (event.encode(), text))
            return self.version, lines

    def _tell(self, kind: str, was: Object | None, now: Object | None) -> None:
        """now: gets its version."""
        self.version += 1
        version = {"resourceVersion": str(self.version)}
        if now is not None:
            now["metadata"] |= version
        text = orjson.dumps(now or {**(was or {}), "metadata": {**was["metadata"], **version}})  # type: ignore[index]
        self._history[kind].append((self.version, was, now, text))
        self.wake()


def _key(kind: str, metadata: Object) -> str:
    if kind not in (PODS, CLAIMS):
        return str(metadata["name"])
    # A malformed object may have no name.
    return f"{metadata['namespace']}/{metadata['name']}" if "name" in metadata else metadata["uid"]


@functools.lru_cache(maxsize=100)
def _parsed(text: str) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    """(path of the field, whether it must be equal, value)."""
    found = []
    for term in filter(None, text.split(",")):
        field, _, value = term.partition("=")
        found.append((tuple(field.removesuffix("!").split(".")), not field.endswith("!"), value))
    return tuple(found)


def _selector(query: dict[str, str]) -> tuple[tuple[tuple[str, ...], bool, str], ...]:
    return _parsed(query.get("fieldSelector", ""))


def _selected(each: Object | None, selector: tuple[tuple[tuple[str, ...], bool, str], ...]) -> bool:
    if each is None:
        return False
    for names, must, value in selector:
        found: Any = each
        for name in names:
            found = found.get(name) if isinstance(found, dict) else None
        if ((found or "") == value) != must:
            return False
    return True
