"""The last hour of each GPU and container: its use in steps of ten seconds, and its events.

It is in the memory of the HTTP process alone and begins anew with it: what must outlive that
belongs in Prometheus. Its own samples leave the averages of other readers as they are.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import time
from array import array
from collections import defaultdict, deque
from collections.abc import Awaitable, Callable, Iterator, Mapping
from typing import Any, NamedTuple

from vcuda_oci.ledger import events
from vcuda_oci.ledger.event_reader import Reader

from .node_state import Node, View

STEP_SECONDS = 10
STEPS = 360
# Of GPUs and of containers; further ones take the place of those that ended first, or have none.
MOST_SERIES = 512
# Events of all GPUs, and how long they are shown; older ones make room.
MOST_MARKS, MARK_SECONDS = 200, 3600
COMPUTE, MEMORY, WAITED = "compute_percent", "memory_bytes", "waited_percent"

_log = logging.getLogger(__name__)


class Points:
    """The last STEPS figures of a series, the oldest first; None: unknown. Of eight bytes each."""

    __slots__ = ("_figures",)

    def __init__(self) -> None:
        self._figures = array("d")  # NaN: unknown

    def append(self, figure: float | None) -> None:
        if len(self) == STEPS:
            del self._figures[0]
        self._figures.append(math.nan if figure is None else figure)

    def __len__(self) -> int:
        return len(self._figures)

    def __iter__(self) -> Iterator[float | None]:
        return (None if math.isnan(figure) else figure for figure in self._figures)


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
        self._marks: deque[Mark] = deque(maxlen=MOST_MARKS)

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
        return [mark for mark in self._marks if 0 <= now - mark.time <= MARK_SECONDS]


class History:
    """gpus, containers: by UUID or allocation, its figures by name.

    A series ends now. also: called with each sample.
    """

    def __init__(self, node: Node, also: Callable[[View], Awaitable[None]] | None = None) -> None:
        self._node, self._own, self._also = node, Node(node.name, node.state_dir), also
        self.marks = Marks(node.state_dir)
        self.gpus: dict[str, dict[str, Points]] = {}
        self.containers: dict[str, dict[str, Points]] = {}

    async def run(self) -> None:
        """Sample until cancelled."""
        while True:
            await asyncio.sleep(STEP_SECONDS)
            self._own.known, self._own.described = self._node.known, self._node.described
            try:
                view = await self._own.view()
                self.add(view)
                self.marks.follow(view)
                if self._also:
                    await self._also(view)
            except Exception:  # a fault of one sample must not end the pages
                _log.exception("no sample for the history")

    def add(self, view: View) -> None:
        gpus = {gpu["uuid"]: _sums(view.tenants_of(gpu["uuid"])) for gpu in view.gpus or []}
        shares: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
        for entry in view.tenants:
            shares[entry["id"]].append(entry)
        _extend(self.gpus, gpus)
        _extend(self.containers, {id: _sums(entries) for id, entries in shares.items()})

    def as_json(self) -> dict[str, Any]:
        return {
            "step_seconds": STEP_SECONDS,
            "gpus": _listed(self.gpus),
            "containers": _listed(self.containers),
            "events": [mark._asdict() for mark in self.marks.since(time.time())],
        }


def _sums(entries: list[dict[str, Any]]) -> dict[str, float | None]:
    """The figures of some shares together; a figure that one of them lacks is unknown."""
    core, memory, waited = (
        [entry[key] for entry in entries]
        for key in ("core_used_percent", "memory_used_bytes", "waited_percent")
    )
    return {
        COMPUTE: None if None in core else round(sum(core, 0.0), 1),
        MEMORY: None if None in memory else round(sum(memory, 0.0), 1),
        WAITED: None if None in waited else max(waited, default=0.0),
    }


def _extend(
    series: dict[str, dict[str, Points]], now: Mapping[str, Mapping[str, float | None]]
) -> None:
    """Add a point to each series, a new one where there is room; drop those without any figure.

    Series of ended containers make room, so that many short ones do not keep later ones out.
    """
    ended = sorted((key for key in series if key not in now), key=lambda key: _last(series[key]))
    new = [key for key in now if key not in series]
    for key in ended[: max(0, len(series) + len(new) - MOST_SERIES)]:
        del series[key]
    for key in new:
        if len(series) < MOST_SERIES:
            series[key] = {name: Points() for name in (COMPUTE, MEMORY, WAITED)}
    for key, figures in list(series.items()):
        for name, points in figures.items():
            points.append(now[key][name] if key in now else None)
        if key not in now and all(point is None for point in figures[MEMORY]):
            del series[key]


def _last(figures: Mapping[str, Points]) -> int:
    """How long ago the container had its last point: the smaller, the longer ago."""
    known = [at for at, point in enumerate(figures[COMPUTE]) if point is not None]
    return known[-1] - len(figures[COMPUTE]) if known else -STEPS


def _listed(series: Mapping[str, Mapping[str, Points]]) -> dict[str, Any]:
    return {
        key: {name: list(points) for name, points in figures.items()}
        for key, figures in series.items()
    }
