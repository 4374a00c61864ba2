"""What came of a simulation, as a table and as JSON."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from .nodes import LINKED

if TYPE_CHECKING:
    from collections.abc import Sequence

    from vcuda_plugin.scheduler.objects import NodeFacts

    from .replay import Outcome
    from .trace import TracePod

_HEADINGS = ("POLICY", "PLACED", "AT ONCE", "WAITED", "ALLOCATED", "FRAGMENTED", "LINKED", "TOOK")
_BELOW = ("", "", "", "p99 / most", "mean / most", "mean / then", "", "p50 / p99")


def figures(
    pods: Sequence[TracePod], nodes: Sequence[NodeFacts], outcome: Outcome
) -> dict[str, Any]:
    """Of `latency_ms` alone a second run says something else."""
    gpus = sum(len(node.usable) for node in nodes)
    most = max(outcome.allocated)
    full = outcome.allocated.index(most)
    return {
        "placed": len(outcome.placed),
        "placed_percent": _percent(len(outcome.placed), len(pods)),
        "at_once_percent": _percent(sum(not each for each in outcome.waited), len(pods)),
        "never_fits": len(outcome.never),
        "no_room": len(pods) - len(outcome.placed) - len(outcome.never),
        "wait_seconds": _quantiles(outcome.waited, 1),
        "allocated_percent": {
            "most": _percent(most, gpus),
            "mean": _percent(_mean(outcome.allocated), gpus),
        },
        "fragmented_percent": {
            "at_most": _percent(outcome.fragmented[full], gpus),
            "mean": _percent(_mean(outcome.fragmented), gpus),
        },
        "linked_percent": _linked(nodes, outcome),
        "latency_ms": _quantiles(outcome.took, 1e3),
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    rows: list[Sequence[str]] = [_HEADINGS, _BELOW]
    for policy, each in found.items():
        wait, took = each["wait_seconds"], each["latency_ms"]
        held, lost = each["allocated_percent"], each["fragmented_percent"]
        rows.append(
            (
                policy,
                f"{each['placed_percent']:.1f} %",
                f"{each['at_once_percent']:.1f} %",
                f"{wait['p99']:.0f} / {wait['most']:.0f} s",
                f"{held['mean']:.1f} / {held['most']:.1f} %",
                f"{lost['mean']:.1f} / {lost['at_most']:.1f} %",
                "-" if each["linked_percent"] is None else f"{each['linked_percent']:.1f} %",
                f"{took['p50']:.1f} / {took['p99']:.1f} ms",
            )
        )
    widths = [max(len(row[column]) for row in rows) for column in range(len(_HEADINGS))]
    return [
        "  ".join(cell.ljust(width) for cell, width in zip(row, widths)).rstrip() for row in rows
    ]


def _linked(nodes: Sequence[NodeFacts], outcome: Outcome) -> float | None:
    """Of the pods with several GPUs on nodes that tell distances, those whose GPUs are linked."""
    told = {gpu.uuid: node.told for node in nodes for gpu in node.usable}
    farthest = []
    for uuids in outcome.placed.values():
        on = told[uuids[0]]
        distances = on.between([gpu for gpu in on.gpus if gpu.uuid in uuids])
        if distances and len(uuids) > 1:
            farthest.append(max(map(max, distances)))
    linked = sum(far == LINKED for far in farthest)
    return _percent(linked, len(farthest)) if farthest else None


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def _mean(values: Sequence[float]) -> float:
    return sum(values) / len(values)


def _quantiles(values: Sequence[float], times: float) -> dict[str, float]:
    """The smallest value that so many percent do not exceed, and the greatest; 0 of none."""
    ordered = sorted(values) or [0.0]
    found = {"p50": 50, "p99": 99, "most": 100}
    return {
        name: round(times * ordered[math.ceil(len(ordered) * percent / 100) - 1], 3)
        for name, percent in found.items()
    }
