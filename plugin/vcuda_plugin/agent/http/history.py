"""The last hour of each GPU and container: how much of it was used, in steps of ten seconds.

It is in the memory of the HTTP process alone and begins anew with it: what must outlive that
belongs in Prometheus. Its own samples leave the averages of other readers as they are.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import Awaitable, Callable, Iterable, Mapping
from typing import Any

from .marks import Marks
from .node_state import Node, View

STEP_SECONDS = 10
STEPS = 360
# Of GPUs and of containers; further ones take the place of those that ended first, or have none.
MOST_SERIES = 512
COMPUTE, MEMORY, WAITED = "compute_percent", "memory_bytes", "waited_percent"

_log = logging.getLogger(__name__)
_Points = deque[Any]  # of float or None; Python 3.9 cannot evaluate a union


class History:
    """gpus, containers: by UUID or allocation, its figures by name.

    A series has at most STEPS points, the oldest first, and ends now. None: unknown. also: called
    with each sample.
    """

    def __init__(self, node: Node, also: Callable[[View], Awaitable[None]] | None = None) -> None:
        self._node, self._own, self._also = node, Node(node.name, node.state_dir), also
        self.marks = Marks(node.state_dir)
        self.gpus: dict[str, dict[str, _Points]] = {}
        self.containers: dict[str, dict[str, _Points]] = {}

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
        gpus = {
            gpu["uuid"]: _sums([e for e in view.tenants if e["gpu_uuid"] == gpu["uuid"]])
            for gpu in view.gpus or []
        }
        ids = dict.fromkeys(entry["id"] for entry in view.tenants)
        containers = {id: _sums([e for e in view.tenants if e["id"] == id]) for id in ids}
        _extend(self.gpus, gpus)
        _extend(self.containers, containers)

    def as_json(self) -> dict[str, Any]:
        return {
            "step_seconds": STEP_SECONDS,
            "gpus": _listed(self.gpus),
            "containers": _listed(self.containers),
            "events": [mark._asdict() for mark in self.marks.since(time.time())],
        }


def _sums(entries: list[dict[str, Any]]) -> dict[str, float | None]:
    """The figures of some shares together; a figure that one of them lacks is unknown."""
    waited = [entry["waited_percent"] for entry in entries]
    return {
        COMPUTE: _sum(entry["core_used_percent"] for entry in entries),
        MEMORY: _sum(entry["memory_used_bytes"] for entry in entries),
        WAITED: None if None in waited else max(waited, default=0.0),
    }


def _sum(figures: Iterable[float | None]) -> float | None:
    total = 0.0
    for figure in figures:
        if figure is None:
            return None
        total += figure
    return round(total, 1)


def _extend(
    series: dict[str, dict[str, _Points]], now: Mapping[str, Mapping[str, float | None]]
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
            series[key] = {name: deque(maxlen=STEPS) for name in (COMPUTE, MEMORY, WAITED)}
    for key, figures in list(series.items()):
        for name, points in figures.items():
            points.append(now[key][name] if key in now else None)
        if key not in now and all(point is None for point in figures[MEMORY]):
            del series[key]


def _last(figures: Mapping[str, _Points]) -> int:
    """How long ago the container had its last point: the smaller, the longer ago."""
    points = figures[COMPUTE]
    return -next((ago for ago, point in enumerate(reversed(points)) if point is not None), STEPS)


def _listed(series: Mapping[str, Mapping[str, _Points]]) -> dict[str, Any]:
    return {
        key: {name: list(points) for name, points in figures.items()}
        for key, figures in series.items()
    }
