"""Turns of containers on the GPUs that they share: time held, waited and lost.

Figures of the turn keeper, which writes `<state-dir>/turns/UUID` (libvcuda/turns/tenant/figures.h)
and counts since it took a container over. What is lost is computed from the containers' usage
pages, so a container can change that figure for its own turns; the others are the keeper's own.
Without a keeper there are no figures.
"""

from __future__ import annotations

import os
import time
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.system import files

FOLDER = "turns"
# The keys of a container's totals.
TOTALS = ("held_seconds", "waited_for_turn_seconds", "waited_for_share_seconds", "lost_seconds")
TURN, SHARE = "turn", "share"
_BEING_WRITTEN = ".new"
_MOST_BYTES = 1 << 20
# The keeper writes so often while turns run, and at once where they begin; FIGURES_NS of
# libvcuda/turns/keeper/turns.c, and what a busy machine adds.
_WRITTEN_NS = 600_000_000
# A container that waits for less than this part of the time has no reason worth showing.
_LEAST_WAIT = 0.1


class Turns(NamedTuple):
    """A container's totals on one GPU."""

    held_ns: int
    waited_for_turn_ns: int  # while another container held the GPU
    waited_for_share_ns: int  # while none did, and its own share was used up
    lost_ns: int  # part of held_ns in which it left the GPU idle
    free_ns: int  # in which it could use the GPU without a turn
    false_ns: int  # in which its signals were false


class GpuTurns(NamedTuple):
    """The figures of one GPU, written at `at_ns` and read at `read_ns` (CLOCK_MONOTONIC).

    lost_ns: of all its containers, ended ones too. of: by allocation.
    """

    at_ns: int
    read_ns: int
    lost_ns: int
    of: Mapping[str, Turns]


def read(state_dir: str) -> dict[str, GpuTurns]:
    """The figures of each GPU, by UUID; none without a keeper, or for a user other than root."""
    try:
        uuids = os.listdir(f"{state_dir}/{FOLDER}")
    except OSError:
        return {}
    found = {}
    for uuid in uuids:
        if uuid.endswith(_BEING_WRITTEN):
            continue
        try:
            text = files.read(f"{state_dir}/{FOLDER}/{uuid}", _MOST_BYTES).decode()
            found[uuid] = _parse(text)
        except (OSError, ValueError):
            continue
    return found


def add_to(
    tenants: Sequence[dict[str, Any]],
    gpus: Sequence[dict[str, Any]],
    earlier: Mapping[str, GpuTurns],
    later: Mapping[str, GpuTurns],
) -> None:
    """Add the figures to entries of views.py, from two readings; unknown ones are null.

    Totals are the later reading's. Percents, `waits_for` and `held_by` are of the time between
    both, and null where no turn was written in it.
    """
    for gpu in gpus:
        now, before = later.get(gpu["uuid"]), earlier.get(gpu["uuid"])
        span = _span(before, now)
        gpu["lost_seconds"] = None if now is None else now.lost_ns / 1e9
        gpu["lost_percent"] = (
            _percent(now.lost_ns - before.lost_ns, span) if now and before and span else None
        )
    names = {entry["id"]: entry["name"] for entry in tenants}
    for entry in tenants:
        now, before = later.get(entry["gpu_uuid"]), earlier.get(entry["gpu_uuid"])
        total = now.of.get(entry["id"]) if now else None
        entry.update(zip(TOTALS, [ns / 1e9 for ns in total] if total else [None] * len(TOTALS)))
        entry.update(held_percent=None, waits_for=None, held_by=None)
        span = _span(before, now)
        if span and total and now and before:
            since = _between(before.of.get(entry["id"]), total)
            entry["held_percent"] = _percent(since.held_ns, span)
            entry["waits_for"] = _reason(since, span)
            if entry["waits_for"] == TURN:
                entry["held_by"] = _holders(before, now, entry["id"], names)


def waits(entry: Mapping[str, Any]) -> str:
    """Why the container waits, such as "waits: share used up"; "": it does not, or unknown."""
    if entry["waits_for"] == SHARE:
        return "waits: share used up"
    if entry["waits_for"] != TURN:
        return ""
    if not entry["held_by"]:
        return "waits: GPU held by another container"
    first, *others = entry["held_by"]
    return f"waits: GPU held by {first}" + (f" and {len(others)} more" if others else "")


def _parse(text: str) -> GpuTurns:
    """Raises ValueError: not a file of figures."""
    head, *lines = text.splitlines()
    at_ns, lost_ns = map(int, head.split())
    of = {}
    for line in lines:
        *figures, id = line.split(" ", len(Turns._fields))
        if len(figures) != len(Turns._fields):
            raise ValueError("not a container's figures")
        of[id] = Turns(*map(int, figures))
    return GpuTurns(at_ns, time.monotonic_ns(), lost_ns, of)


def _span(before: GpuTurns | None, now: GpuTurns | None) -> int:
    """The time that the difference of both covers; 0: none.

    Figures of a GPU at rest were still valid when they were read.
    """
    if not before or not now or now.at_ns <= before.at_ns or now.lost_ns < before.lost_ns:
        return 0
    rested = before.read_ns - before.at_ns > _WRITTEN_NS and before.read_ns < now.at_ns
    return now.at_ns - (before.read_ns if rested else before.at_ns)


def _between(before: Turns | None, now: Turns) -> Turns:
    """What was added between both; all of `now` if a new keeper began to count at 0."""
    if before is None or any(one < other for one, other in zip(now, before)):
        return now
    return Turns(*(one - other for one, other in zip(now, before)))


def _percent(ns: int, span: int) -> float:
    return min(100.0, 100 * ns / span)


def _reason(since: Turns, span: int) -> str | None:
    for_turn, for_share = since.waited_for_turn_ns, since.waited_for_share_ns
    if for_turn + for_share < _LEAST_WAIT * span:
        return None
    return TURN if for_turn >= for_share else SHARE


def _holders(before: GpuTurns, now: GpuTurns, id: str, names: Mapping[str, str]) -> list[str]:
    """Names of the other containers that held the GPU, the longest first."""
    held = {
        other: _between(before.of.get(other), turns).held_ns
        for other, turns in now.of.items()
        if other != id and other in names
    }
    longest = sorted(held, key=lambda other: held[other], reverse=True)
    return [names[other] for other in longest if held[other]]
