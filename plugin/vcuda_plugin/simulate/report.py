"""The results of a simulation, as a table and as figures for JSON."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from statistics import fmean
from typing import Any

from vcuda_hook.text.table import lines

from ..extender.cluster.objects import NodeFacts
from ..extender.quota.quota_limits import Limit
from .nodes import LINKED
from .replay import Outcome
from .trace_pod import TracePod

_HEADINGS = (
    "POLICY", "PLACED", "AT ONCE", "WAITED", "ALLOCATED", "FRAGMENTED", "LINKED", "QUOTA",
    "TOOK",
)  # fmt: skip
_BELOW = (
    "", "", "all / whole", "p99 / most", "mean / most", "mean / then", "", "refused",
    "p50 / p99",
)  # fmt: skip


def figures(
    pods: Sequence[TracePod],
    nodes: Sequence[NodeFacts],
    outcome: Outcome,
    limits: Mapping[str, Limit] = {},
) -> dict[str, Any]:
    """Return the figures of a policy. Only `latency_ms` differs in a second run. limits: quotas."""
    gpus = sum(len(node.usable) for node in nodes)
    most = max(outcome.allocated)
    full = outcome.allocated.index(most)
    whole = {pod.name for pod in pods if pod.core >= 100}
    at_once = {name for name, waited in zip(outcome.placed, outcome.waited) if not waited}
    return {
        "placed": len(outcome.placed),
        "placed_percent": _percent(len(outcome.placed), len(pods)),
        "at_once_percent": _percent(len(at_once), len(pods)),
        "whole_at_once_percent": _percent(len(at_once & whole), len(whole)) if whole else None,
        "never_fits": len(outcome.never),
        "no_room": len(pods) - len(outcome.placed) - len(outcome.never),
        "wait_seconds": _quantiles(outcome.waited, 1),
        "allocated_percent": {
            "most": _percent(most, gpus),
            "mean": _percent(fmean(outcome.allocated), gpus),
        },
        "fragmented_percent": {
            "at_most": _percent(outcome.fragmented[full], gpus),
            "mean": _percent(fmean(outcome.fragmented), gpus),
        },
        "linked_percent": _linked(nodes, outcome),
        "quota": _quota(outcome, limits) if limits else None,
        "moves": {
            "count": len(outcome.moved),
            "bytes": sum(outcome.moved),
            "placed": len(outcome.by_moves),
        },
        "latency_ms": _quantiles(outcome.took, 1e3),
    }


def table(found: dict[str, dict[str, Any]]) -> list[str]:
    rows: list[Sequence[str]] = [_BELOW]
    for policy, each in found.items():
        wait, took = each["wait_seconds"], each["latency_ms"]
        held, lost = each["allocated_percent"], each["fragmented_percent"]
        rows.append(
            (
                policy,
                f"{each['placed_percent']:.1f} %",
                f"{each['at_once_percent']:.1f} / {_shown(each['whole_at_once_percent'])}",
                f"{wait['p99']:.0f} / {wait['most']:.0f} s",
                f"{held['mean']:.1f} / {held['most']:.1f} %",
                f"{lost['mean']:.1f} / {lost['at_most']:.1f} %",
                _shown(each["linked_percent"]),
                str(each["quota"]["refused"]) if each["quota"] else "-",
                f"{took['p50']:.1f} / {took['p99']:.1f} ms",
            )
        )
    return lines(_HEADINGS, rows)


def quota_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line for each policy, namespace and model: the most cards used at a time."""
    return [
        f"{policy}: namespace {row['namespace']} used at most {row['most']:g} of "
        f"{row['limit']:g} cards of {row['model']}"
        for policy, each in found.items()
        for row in (each["quota"] or {"used": ()})["used"]
    ]


def move_lines(found: dict[str, dict[str, Any]]) -> list[str]:
    """Return one line for each replay with moves."""
    return [
        f"{policy}: {each['moves']['count']} moves, of at most "
        f"{each['moves']['bytes'] / 2**30:.0f} GiB, placed {each['moves']['placed']} pods"
        for policy, each in found.items()
        if each["moves"]["count"]
    ]


def _quota(outcome: Outcome, limits: Mapping[str, Limit]) -> dict[str, Any]:
    """refused: pods that once had room but were refused by quota alone. used: in cards."""
    used = [
        {
            "namespace": namespace,
            "model": model,
            "most": outcome.used.get((namespace, model), 0) / 100,
            "limit": limit / 100,
        }
        for namespace, each in sorted(limits.items())
        for model, limit in sorted(each.core.items())
    ]
    never = len(outcome.forbidden - set(outcome.placed))
    return {"refused": len(outcome.forbidden), "never_placed": never, "used": used}


def _shown(percent: float | None) -> str:
    return "-" if percent is None else f"{percent:.1f} %"


def _linked(nodes: Sequence[NodeFacts], outcome: Outcome) -> float | None:
    """Return the percent of pods with linked GPUs, among those with several GPUs and distances."""
    reported = {gpu.uuid: node.reported for node in nodes for gpu in node.usable}
    farthest = []
    for uuids in outcome.placed.values():
        on = reported[uuids[0]]
        distances = on.between([gpu for gpu in on.gpus if gpu.uuid in uuids])
        if distances and len(uuids) > 1:
            farthest.append(max(map(max, distances)))
    linked = sum(far == LINKED for far in farthest)
    return _percent(linked, len(farthest)) if farthest else None


def _percent(part: float, whole: float) -> float:
    return round(100 * part / whole, 2)


def _quantiles(values: Sequence[float], times: float) -> dict[str, float]:
    """Return the 50th and 99th percentile and the maximum; 0 without values."""
    ordered = sorted(values) or [0.0]
    found = {"p50": 50, "p99": 99, "most": 100}
    return {
        name: round(times * ordered[math.ceil(len(ordered) * percent / 100) - 1], 3)
        for name, percent in found.items()
    }
