"""The cluster's events of one pod, asked by kubectl as its user has configured it."""

from __future__ import annotations

import json
import re
import urllib.parse
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any

from . import kubectl

_MOST_LISTED = 500
_MOST_EVENTS = 5
_NAME = re.compile(r"[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?")


@dataclass
class PodEvent:
    """time: as the API writes it, "" if unknown. source: the component that wrote the event."""

    time: str
    type: str
    reason: str
    message: str
    source: str


@dataclass
class Scheduling:
    """events: the newest last. unknown: why kubectl gave no answer; "": it did. namespace: of the
    events' pod.
    """

    events: Sequence[PodEvent] = ()
    unknown: str = ""
    namespace: str = ""

    def as_json(self) -> dict[str, Any]:
        return {"events": [asdict(event) for event in self.events], "unknown": self.unknown or None}


def ask(namespace: str, pod: str) -> Scheduling:
    """The pod's events. namespace: "": any."""
    if not _NAME.fullmatch(pod) or (namespace and not _NAME.fullmatch(namespace)):
        return Scheduling(unknown="not the name of a pod")
    place = f"namespaces/{namespace}/" if namespace else ""
    selector = urllib.parse.quote(f"involvedObject.kind=Pod,involvedObject.name={pod}")
    path = f"/api/v1/{place}events?fieldSelector={selector}&limit={_MOST_LISTED}"
    try:
        return parse(kubectl.raw(path))
    except kubectl.Unanswered as error:
        return Scheduling(unknown=str(error))


def parse(text: bytes) -> Scheduling:
    """The newest events of an EventList, if they are of one pod; not those of an earlier pod of the
    name. Source: Kubernetes API, core/v1 Event.
    """
    try:
        items = [item for item in json.loads(text)["items"] if isinstance(item, dict)]
        found = [(_event(item), item["involvedObject"].get("uid")) for item in items]
        namespaces = sorted({str(item["involvedObject"]["namespace"]) for item in items})
    except (ValueError, KeyError, TypeError, AttributeError, RecursionError):
        return Scheduling(unknown="kubectl gave no list of events")
    if len(namespaces) > 1:
        listed = ", ".join(namespaces[:_MOST_EVENTS])
        return Scheduling(unknown=f"pods of this name are in {listed}; write NAMESPACE/POD")
    found.sort(key=lambda each: each[0].time)
    of_the_newest = [event for event, uid in found if uid == found[-1][1]]
    return Scheduling(of_the_newest[-_MOST_EVENTS:], namespace="".join(namespaces))


def _event(item: dict[str, Any]) -> PodEvent:
    series, source = item.get("series"), item.get("source")
    times = (
        series.get("lastObservedTime") if isinstance(series, dict) else None,
        item.get("lastTimestamp"),
        item.get("eventTime"),
        item.get("firstTimestamp"),
    )
    component = source.get("component") if isinstance(source, dict) else None
    return PodEvent(
        time=next((time for time in times if isinstance(time, str)), ""),
        type=str(item.get("type") or ""),
        reason=str(item.get("reason") or ""),
        message=str(item.get("message") or ""),
        source=str(item.get("reportingComponent") or component or ""),
    )
