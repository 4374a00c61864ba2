"""How much of each GPU was used in the last hour, for `vcuda top`: the agent's history, then own
samples.

The agent serves it at the setting ``listen``; without an agent it begins with the first sample.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Mapping, Sequence
from typing import Any

from . import agent_client

STEP_SECONDS = 10
STEPS = 360
# Before this many points a line says nothing.
_LEAST = 6
_BARS, _PLAIN_BARS = " ▁▂▃▄▅▆▇█", " .:-=+*#@"


class History:
    """of: by UUID, percents of compute in steps of STEP_SECONDS, oldest first; None: unknown."""

    def __init__(self, agents: Mapping[str, Sequence[float | None]]) -> None:
        self.of = {uuid: deque(points, maxlen=STEPS) for uuid, points in agents.items()}
        self._begun: float | None = None
        self._sums: dict[str, list[float]] = {}

    def add(self, view: Mapping[str, Any]) -> None:
        """Add a sample of LiveView; each step is the average of its samples."""
        if self._begun is None:
            self._begun = view["time"]
        for gpu in view["gpus"]:
            used = [e["core_used_percent"] for e in view["tenants"] if e["gpu_uuid"] == gpu["uuid"]]
            if None not in used:
                self._sums.setdefault(gpu["uuid"], []).append(min(100.0, sum(used)))
        if view["time"] - self._begun >= STEP_SECONDS:
            for gpu in view["gpus"]:
                samples = self._sums.get(gpu["uuid"], [])
                point = sum(samples) / len(samples) if samples else None
                self.of.setdefault(gpu["uuid"], deque(maxlen=STEPS)).append(point)
            self._begun, self._sums = view["time"], {}

    def line(self, uuid: str, width: int, plain: bool) -> tuple[str, str]:
        """A sparkline of `width` characters, the newest point at the right, and what it shows;
        ("", ""): too little is known. plain: in ASCII.
        """
        points = self.of.get(uuid, ())
        known = [point for point in points if point is not None]
        if len(points) < _LEAST or not known or width < 1:
            return "", ""
        bars, drawn = _PLAIN_BARS if plain else _BARS, ""
        for part in _parts(points, width):
            figures = [point for point in part if point is not None]
            level = sum(figures) / len(figures) if figures else None
            drawn += "?" if level is None else bars[_level(level, len(bars))]
        minutes = len(points) * STEP_SECONDS // 60
        average = sum(known) / len(known)
        return drawn.rjust(width), f"{minutes} min: {average:.0f} %, at most {max(known):.0f} %"

    def marks(self, uuid: str, width: int, ages: Sequence[float]) -> str:
        """A "^" below the part of `line` in which each event was; "": there is none. ages: in
        seconds.
        """
        points = len(self.of.get(uuid, ()))
        count = min(width, points)
        drawn = [" "] * width
        for age in ages:
            at = points - 1 - int(age // STEP_SECONDS)
            if count and 0 <= at < points:
                drawn[width - count + at * count // points] = "^"
        return "".join(drawn) if "^" in drawn else ""


def _level(percent: float, levels: int) -> int:
    """A used GPU never looks like an idle one."""
    if percent < 0.5:
        return 0
    return min(levels - 1, max(1, round(percent / 100 * (levels - 1))))


def _parts(points: Sequence[float | None], width: int) -> list[list[float | None]]:
    """The points in at most `width` parts of nearly the same number."""
    listed = list(points)
    count = min(width, len(listed))
    ends = [round(number * len(listed) / count) for number in range(count + 1)]
    return [listed[begin:end] for begin, end in zip(ends, ends[1:])]


def of_agent(listen: str) -> dict[str, list[float | None]]:
    """The agent's history of each GPU; {}: no agent serves there. listen: the setting."""
    tree = agent_client.ask(listen, "/history")
    try:
        of_gpus = tree["gpus"].items()
        found = {str(uuid): each["compute_percent"][-STEPS:] for uuid, each in of_gpus}
        is_ours = tree["step_seconds"] == STEP_SECONDS and all(map(_is_series, found.values()))
    except (AttributeError, TypeError, KeyError):
        return {}
    return found if is_ours else {}


def _is_series(points: object) -> bool:
    return isinstance(points, list) and all(
        point is None or (isinstance(point, (int, float)) and 0 <= point <= 1e6) for point in points
    )
