"""Compare the turns of each container with what NVML saw, and write hidden work to its limits page.

What hidden work is, and how it is found: hidden_work.py.
"""

from __future__ import annotations

import contextlib
import time
from collections import Counter, defaultdict
from collections.abc import Iterable, Mapping
from typing import NamedTuple

from vcuda_hook.live import turn_figures
from vcuda_oci.guest import page_file
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.pages import layout, page_reader
from vcuda_oci.pages.limits_in_place import OpenPage, Turn

from .hidden_work import Hidden, HiddenWork, Second

# NVML's figures are of about this time before they are read.
SECOND = 1.0
MS = 1_000_000
# While turns run, the keeper writes its figures twice in this time.
FRESH_NS = 1_000_000_000

# An allocation's id and a GPU's UUID.
Place = tuple[str, str]


class _Reading(NamedTuple):
    """held_ns: in turns, from the limits pages. free_ns: without turns, false_ns: with false
    signals; from the keeper's file.
    """

    at_ns: int
    held_ns: Mapping[Place, int]
    free_ns: Mapping[Place, int]
    false_ns: Mapping[Place, int]


class TurnAudit:
    """The node's audit: `begin`, then a SECOND later `end`, again and again."""

    def __init__(self, state_dir: str) -> None:
        self._state_dir = state_dir
        self._gpus: defaultdict[str, HiddenWork] = defaultdict(HiddenWork)
        self._began: _Reading | None = None
        self._ended_ns = time.monotonic_ns()
        self._due_ns: Counter[Place] = Counter()  # found and not written yet
        self._held_ns: Mapping[Place, int] = {}  # of the last reading
        # When the keeper wrote its figures of each GPU that had no turns then, by UUID.
        self._at_rest: dict[str, int] = {}

    def begin(self) -> None:
        self._began = self._read()

    def end(
        self,
        allocations: Iterable[Allocation],
        used: Mapping[Place, float],
        totals: Mapping[str, float],
    ) -> dict[Place, Hidden]:
        """Return what is hidden where, and write what is new of it.

        used: NVML's part of the last second, 0 to 1. totals: all use of it, by GPU.
        """
        began, self._began = self._began, None
        if began is None:
            return {}
        now = self._read()
        seconds, self._ended_ns = (now.at_ns - self._ended_ns) / 1e9, now.at_ns
        polls: defaultdict[str, dict[str, Second]] = defaultdict(dict)
        for place in _places(began) & _places(now):
            id, uuid = place
            poll, held_ns = polls[uuid], now.held_ns[place] - began.held_ns[place]
            if held_ns >= 0:  # a new page counts from 0 on
                poll[id] = Second(
                    seconds,
                    held_ns / (now.at_ns - began.at_ns),
                    min(1.0, used.get(place, 0.0)),
                    totals.get(uuid, 0.0),
                    began.free_ns[place],
                    now.false_ns[place] > began.false_ns[place],
                )
        found = {
            (id, uuid): hidden
            for uuid, poll in polls.items()
            for id, hidden in self._gpus[uuid].add(poll).items()
        }
        self._write({one.id: one for one in allocations}, found)
        return found

    def _read(self) -> _Reading:
        """Leave out containers with a page that is leased, released or being written.

        Pages on a GPU that had no turns since the reading before are not read again.
        """
        held, free, false, at_rest = {}, {}, {}, {}
        changed: set[str] = set()
        for uuid, turns in turn_figures.read(self._state_dir).items():
            # Older figures: no turns run, so the time since then is free.
            age_ns = turns.read_ns - turns.at_ns
            since_ns = age_ns if age_ns > FRESH_NS else 0
            for id, one in turns.of.items():
                free[id, uuid], false[id, uuid] = one.free_ns + since_ns, one.false_ns
            if since_ns:
                at_rest[uuid] = turns.at_ns
            if self._at_rest.get(uuid) != turns.at_ns:
                changed |= turns.of.keys()
        for id in changed:
            path = f"{self._state_dir}/containers/{id}/limits"
            with contextlib.suppress(OSError, ValueError):
                page = page_reader.read_limits(page_file.read_page(path, layout.LIMITS_SIZE))
                held.update({(id, gpu.uuid): gpu.turn_held_ns for gpu in page.gpus})
        for place in free:
            if place[0] not in changed and place in self._held_ns:
                held[place] = self._held_ns[place]
        self._held_ns, self._at_rest = held, at_rest
        return _Reading(time.monotonic_ns(), held, free, false)

    def _write(self, allocations: Mapping[str, Allocation], found: Mapping[Place, Hidden]) -> None:
        """Write to the limits pages; what cannot be written is left for the next poll."""
        for place, hidden in found.items():
            self._due_ns[place] += round(hidden.new_seconds * 1e9)
        # What a container hid on a GPU that it has left by a move is not charged on the next one.
        places = {(one.id, share.uuid) for one in allocations.values() for share in one.shares}
        self._due_ns = Counter({at: ns for at, ns in self._due_ns.items() if at in places})
        due = {at: ns // MS for at, ns in self._due_ns.items() if ns >= MS}
        if not due:
            return
        with contextlib.suppress(OSError), Turn(self._state_dir) as mine:
            for (id, uuid), ms in due.items() if mine else ():
                if self._write_page(allocations[id], uuid, ms):
                    self._due_ns[id, uuid] -= ms * MS

    def _write_page(self, allocation: Allocation, uuid: str, ms: int) -> bool:
        path = f"{self._state_dir}/containers/{allocation.id}/limits"
        at = [share.uuid for share in allocation.shares].index(uuid)
        try:
            with contextlib.closing(OpenPage(path, allocation.shares)) as page:
                page.add_hidden_work(at, ms)
        except (OSError, ValueError):
            return False
        return True


def _places(reading: _Reading) -> set[Place]:
    """The places of which both the limits page and the keeper's file have figures."""
    return reading.held_ns.keys() & reading.free_ns.keys()
