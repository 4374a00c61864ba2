"""The events of the last hour that concern a GPU, for the time line of the page."""

from __future__ import annotations

import contextlib
from collections import deque
from collections.abc import Mapping
from typing import Any, NamedTuple

from vcuda_oci.ledger import events
from vcuda_oci.ledger.event_reader import Reader

from .node_state import View

SECONDS = 3600
# Of all GPUs; older ones make room.
MOST = 200


class Mark(NamedTuple):
    """gpu: its UUID. time: in seconds since 1970. kind: as events.record has it. name: the
    container's, or ""."""

    gpu: str
    time: float
    kind: str
    name: str


class Marks:
    """Follows the events of one state folder."""

    def __init__(self, state_dir: str) -> None:
        self._reader = Reader(f"{state_dir}/{events.NAME}")
        self._before: dict[str, list[Mapping[str, Any]]] = {}
        self._marks: deque[Mark] = deque(maxlen=MOST)

    def follow(self, view: View) -> None:
        """Add the events since the last call. An event that names no GPU concerns those of its
        container, which may have ended since the view before."""
        if view.gpus is None:
            return
        now: dict[str, list[Mapping[str, Any]]] = {}
        for entry in view.tenants:
            now.setdefault(entry["id"], []).append(entry)
        shares, self._before = {**self._before, **now}, now
        known = {gpu["uuid"] for gpu in view.gpus}
        with contextlib.suppress(OSError):
            for event in self._reader.new():
                entries = shares.get(event["allocation"], [])
                name = entries[0]["name"] if entries else str(event.get("pod", ""))
                uuids = {entry["gpu_uuid"] for entry in entries}
                uuids |= {each for each in known if each in event["text"]}
                if event["kind"] != events.DECIDED:
                    self._marks += [
                        Mark(uuid, event["time"], event["kind"], name) for uuid in sorted(uuids)
                    ]

    def since(self, now: float) -> list[Mark]:
        """The marks of the hour before `now`, oldest first."""
        return [mark for mark in self._marks if 0 <= now - mark.time <= SECONDS]
