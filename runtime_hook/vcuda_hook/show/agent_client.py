"""Asks the node agent's pages, for `vcuda top`.

Another program may have the address: what it answers is data to check, and it may never answer.
"""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

_ANSWER_SECONDS = 0.5
_MOST_BYTES = 32 << 20
_PERIOD_SECONDS = 2.0
# Sensors that are older than this are not shown.
_FRESH_SECONDS = 10.0
# The agent adds to its history so often.
_EVENTS_SECONDS = 10.0


def ask(listen: str, path: str) -> Any:
    """The page as a JSON tree; None: no answer. listen: the setting, such as "0.0.0.0:5678"."""
    host, _, port = listen.rpartition(":")
    host = host.strip("[]")
    if not port.isdigit():
        return None
    if host in ("", "0.0.0.0", "::"):  # noqa: S104 - what the agent listens on
        host = "127.0.0.1"
    try:
        connection = http.client.HTTPConnection(host, int(port), timeout=_ANSWER_SECONDS)
        try:
            connection.request("GET", path)
            answer = connection.getresponse()
            return json.loads(answer.read(_MOST_BYTES)) if answer.status == 200 else None
        finally:
            connection.close()
    except (OSError, http.client.HTTPException, ValueError, RecursionError):
        return None


class Event(NamedTuple):
    """An event of a GPU. time: seconds since 1970. name: the container's, or ""."""

    time: float
    kind: str
    name: str


class Followed:
    """The GPUs' sensors and events, which a thread asks the agent for: an agent that hangs delays
    nothing."""

    def __init__(self, listen: str) -> None:
        self._listen = listen
        self._known: tuple[float, dict[str, dict[str, float]]] = (0.0, {})
        self._events: dict[str, list[Event]] = {}
        if listen:
            threading.Thread(target=self._follow, daemon=True).start()

    def events(self, uuid: str) -> Sequence[Event]:
        """The last hour's of a GPU, oldest first, as last known."""
        return self._events.get(uuid, ())

    def sensors(self, uuid: str) -> Mapping[str, float]:
        """The figures of a GPU by key; {}: unknown."""
        at, known = self._known
        return known.get(uuid, {}) if time.monotonic() - at < _FRESH_SECONDS else {}

    def _follow(self) -> None:
        asked = -_EVENTS_SECONDS
        while True:
            if time.monotonic() - asked >= _EVENTS_SECONDS:
                asked = time.monotonic()
                self._events = events_of(ask(self._listen, "/history")) or self._events
            found = sensors_of(ask(self._listen, "/usage"))
            if found:
                self._known = time.monotonic(), found
            time.sleep(_PERIOD_SECONDS)


def events_of(tree: Any) -> dict[str, list[Event]]:
    """The events in the agent's /history, by UUID, oldest first; invalid ones are left out."""
    events = tree.get("events") if isinstance(tree, dict) else None
    found: dict[str, list[Event]] = {}
    for each in events if isinstance(events, list) else ():
        at = each.get("time") if isinstance(each, dict) else None
        if isinstance(at, (int, float)) and 0 <= at < 1e12:
            event = Event(at, str(each.get("kind", "")), str(each.get("name", "")))
            found.setdefault(str(each.get("gpu")), []).append(event)
    return {uuid: sorted(its) for uuid, its in found.items()}


def sensors_of(tree: Any) -> dict[str, dict[str, float]]:
    """The sensors in the agent's /usage, by UUID; invalid figures are left out."""
    gpus = tree.get("gpus") if isinstance(tree, dict) else None
    found = {}
    for gpu in gpus if isinstance(gpus, list) else ():
        sensors = gpu.get("sensors") if isinstance(gpu, dict) else None
        if isinstance(sensors, dict):
            found[str(gpu.get("uuid"))] = {
                str(key): float(value)
                for key, value in sensors.items()
                if isinstance(value, (int, float)) and 0 <= value < 1e18
            }
    return found
