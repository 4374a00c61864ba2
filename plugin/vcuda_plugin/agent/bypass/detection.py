"""Find containers that use more of a GPU than their share, from NVML's samples. Pure, no I/O.

One sample proves little: processes start and end, and NVML's figures may be late. A finding is
reported after REPORT_AFTER_POLLS polls in a row show it, and cleared after CLEAR_AFTER_POLLS polls
in a row do not. GPU time is averaged over WINDOW_SECONDS and reported at once.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from vcuda_hook.live.driver_figures import Counted, Figures
from vcuda_hook.text import table

from .hidden_work import Hidden

# Kinds of findings: more memory than the limit, a GPU outside the share, a process without the
# shim, more GPU time than the ceiling, work beside its turns.
MEMORY, ELSEWHERE, UNKNOWN, TIME, TURNS = "memory", "gpu", "shim", "time", "turns"
# Findings that never stop a container. One long kernel may use the GPU beyond the ceiling and is
# charged afterwards. How NVML counts the time of processes that share a GPU is not yet measured.
REPORTED_ONLY = (TIME, TURNS)
# Averages over many polls, reported at once.
_AVERAGES = (TIME, TURNS)

REPORT_AFTER_POLLS = 3
CLEAR_AFTER_POLLS = 5
WINDOW_SECONDS = 60.0
MARGIN_PERCENT = 20
# Room for context and code of one process, where contexts are not charged to the share.
CONTEXT_BYTES = 1 << 30
_MOST_NAMED = 5


class Share(NamedTuple):
    """A container's share of one GPU.

    ceiling_percent: the most GPU time; 100 is no limit. is_whole: the share is the whole GPU.
    context_bytes: memory charged for each context; 0 if contexts are not charged.
    """

    memory_bytes: int
    ceiling_percent: int
    is_whole: bool
    context_bytes: int

    def most_bytes(self, processes: int) -> int:
        """Return the most memory that NVML may show: its figures include contexts and code."""
        return self.memory_bytes + processes * (self.context_bytes or CONTEXT_BYTES)


class Holder(NamedTuple):
    """A container or named slice. name: as people read it. shares: by GPU UUID."""

    name: str
    shares: Mapping[str, Share]


class Process(NamedTuple):
    """A holder's process on one GPU. has_shim: its container's usage page has a slot for it."""

    pid: int
    command: str
    memory_bytes: int
    has_shim: bool


class Finding(NamedTuple):
    """Use of a GPU beyond a share.

    key: the holder's. why: the kind. used, limit: bytes; percent for TIME and TURNS. pids: on the
    host. is_new: this poll is the first that reports it.
    """

    key: str
    why: str
    uuid: str
    used: int
    limit: int
    pids: tuple[int, ...]
    text: str
    is_new: bool


@dataclass
class _Case:
    over: int = 0  # polls in a row that show it
    within: int = 0  # polls in a row that do not
    reported: bool = False


class Watch:
    """The findings of one node. Times are in seconds."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, str, str], _Case] = {}
        self._times: dict[tuple[str, str], deque[tuple[float, float]]] = {}

    def update(
        self,
        now: float,
        holders: Mapping[str, Holder],
        seen: Mapping[tuple[str, str], list[Process]],
        parts: Mapping[tuple[str, str], float],
        hidden: Mapping[tuple[str, str], Hidden],
        driver: Figures,
    ) -> list[Finding]:
        """Add one poll; return the current findings.

        seen: processes by holder's key and GPU. parts: of the GPU's time, 0 to 1; hidden: work
        beside turns; driver: memory that the driver counts for a cgroup, likewise.
        """
        signs = {
            (key, uuid, why): (used, limit, culprits)
            for (key, uuid), processes in seen.items()
            for why, used, limit, culprits in self._signs(
                now,
                (key, uuid),
                holders[key],
                processes,
                parts.get((key, uuid), 0.0),
                driver.get((key, uuid)),
            )
        } | {
            (key, uuid, TURNS): (one.used_percent, one.held_percent, seen[key, uuid])
            for (key, uuid), one in hidden.items()
        }
        self._times = {place: samples for place, samples in self._times.items() if place in seen}
        found = []
        for case in self._cases.keys() | signs.keys():
            is_new = self._count(case, case in signs)
            if case in signs and self._cases[case].reported:
                key, uuid, why = case
                used, limit, culprits = signs[case]
                text = _text(holders[key].name, uuid, why, used, limit, culprits)
                pids = tuple(process.pid for process in culprits)
                found.append(Finding(key, why, uuid, used, limit, pids, text, is_new))
        self._cases = {case: state for case, state in self._cases.items() if case[0] in holders}
        return sorted(found)

    def _count(self, case: tuple[str, str, str], is_over: bool) -> bool:
        """Count one poll of a case; return whether the case is reported from now on."""
        state = self._cases.setdefault(case, _Case())
        state.over = state.over + 1 if is_over else 0
        state.within = 0 if is_over else state.within + 1
        if state.within >= CLEAR_AFTER_POLLS:
            del self._cases[case]
        elif not state.reported and state.over >= (
            1 if case[2] in _AVERAGES else REPORT_AFTER_POLLS
        ):
            state.reported = True
            return True
        return False

    def _signs(
        self,
        now: float,
        place: tuple[str, str],
        holder: Holder,
        processes: list[Process],
        part: float,
        counted: Counted | None,
    ) -> Iterator[tuple[str, int, int, list[Process]]]:
        """Yield (why, used, limit, processes) of each excess that this poll shows."""
        # NVML's figures of processes are late, and unknown for some.
        used = counted.used_bytes if counted else sum(one.memory_bytes for one in processes)
        share = holder.shares.get(place[1])
        if share is None:
            yield ELSEWHERE, used, 0, processes
            return
        if used > share.most_bytes(len(processes)):
            yield MEMORY, used, share.memory_bytes, processes
        unknown = [process for process in processes if not process.has_shim]
        # A container that has the GPU alone takes nothing from others.
        if unknown and not share.is_whole:
            yield UNKNOWN, sum(p.memory_bytes for p in unknown), share.memory_bytes, unknown
        most = share.ceiling_percent + MARGIN_PERCENT
        if most < 100:
            percent = self._average(now, place, part)
            if percent > most:
                yield TIME, percent, share.ceiling_percent, processes

    def _average(self, now: float, place: tuple[str, str], part: float) -> int:
        """Add a sample; return the mean of the last WINDOW_SECONDS, 0 before they have passed."""
        samples = self._times.setdefault(place, deque())
        samples.append((now, 100 * part))
        begin = now - WINDOW_SECONDS
        while len(samples) > 1 and samples[1][0] <= begin:
            samples.popleft()
        if samples[0][0] > begin:
            return 0
        # Each sample covers the time since the previous one.
        later = list(samples)[1:]
        busy = sum(
            (late[0] - max(early[0], begin)) * late[1] for early, late in zip(samples, later)
        )
        return round(busy / WINDOW_SECONDS)


def _text(name: str, uuid: str, why: str, used: int, limit: int, processes: list[Process]) -> str:
    named = ", ".join(f"{process.pid} ({process.command})" for process in processes[:_MOST_NAMED])
    if len(processes) > _MOST_NAMED:
        named += f" and {len(processes) - _MOST_NAMED} more"
    what = {
        MEMORY: f"holds {_size(used)} of {uuid}, its limit is {_size(limit)}",
        ELSEWHERE: f"holds {_size(used)} of {uuid}, which it was not given",
        UNKNOWN: f"goes round the shim and holds {_size(used)} of {uuid}, "
        f"its limit is {_size(limit)}",
        TIME: f"used {used} % of {uuid}'s time, its limit is {limit} %",
        TURNS: f"used {used} % of {uuid}'s time, {limit} % of it in its turns; "
        "the rest costs it turns",
    }[why]
    # A process chooses its own name, which may hold control characters.
    plural = "" if len(processes) == 1 else "es"
    return table.printable(f"{name} {what}: process{plural} {named}")


def _size(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
