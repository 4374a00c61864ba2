"""Who takes of a GPU what it was not given, from what NVML shows: pure.

A finding stands when looks in a row agree, and is over when several in a row don't: a process that
begins or ends, and a sample that comes late, make none.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Why: more memory than its limit, a GPU that is not its own, a process without the shim, more time
# than its ceiling.
MEMORY, ELSEWHERE, UNKNOWN, TIME = "memory", "gpu", "shim", "time"
# One huge kernel may hold the GPU for long, and is paid for afterwards. How NVML counts a process's
# time where several share the GPU is not measured on hardware yet: who is over is not stopped.
REPORTED_ONLY = (TIME,)

LOOKS = 3
LOOKS_UNTIL_OVER = 5
WINDOW_SECONDS = 60.0
MARGIN_PERCENT = 20
# What a process takes beside its allocations where contexts are not charged: context and code.
CONTEXT_BYTES = 1 << 30
_MOST_NAMED = 5


class Share(NamedTuple):
    """What may be had of one GPU. ceiling_percent: of its time; 100: all of it, and alone.

    context_bytes: what each context counts against memory_bytes; 0: nothing.
    """

    memory_bytes: int
    ceiling_percent: int
    is_whole: bool
    context_bytes: int

    def most_bytes(self, processes: int) -> int:
        """What so many processes may show in NVML, whose figures hold contexts and code."""
        return self.memory_bytes + processes * (self.context_bytes or CONTEXT_BYTES)


class Holder(NamedTuple):
    """A container, or a named slice. name: for people. shares: by the GPU's UUID."""

    name: str
    shares: Mapping[str, Share]


class Process(NamedTuple):
    """Of a holder, on one GPU. has_shim: its container's usage page has a slot for it."""

    pid: int
    command: str
    memory_bytes: int
    busy_percent: int
    has_shim: bool


class Finding(NamedTuple):
    """key: the holder's. used, limit: bytes or percent, as `why` says. pids: as the host counts."""

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
    against: int = 0  # looks in a row that say so
    for_it: int = 0  # and that don't
    stands: bool = False


class Watch:
    """One node's cases. Times are in seconds."""

    def __init__(self) -> None:
        self._cases: dict[tuple[str, str, str], _Case] = {}
        self._times: dict[tuple[str, str], deque[tuple[float, int]]] = {}

    def look(
        self,
        now: float,
        holders: Mapping[str, Holder],
        seen: Mapping[tuple[str, str], list[Process]],
    ) -> list[Finding]:
        """The findings that stand. seen: by holder's key and GPU, everybody that NVML listed."""
        signs = {
            (key, uuid, why): (used, limit, guilty)
            for (key, uuid), processes in seen.items()
            for why, used, limit, guilty in self._signs(now, key, uuid, holders[key], processes)
        }
        for place in [place for place in self._times if place not in seen]:
            del self._times[place]
        found = []
        for case in self._cases.keys() | signs.keys():
            is_new = self._judge(case, case in signs)
            if case in signs and self._cases[case].stands:
                key, uuid, why = case
                used, limit, guilty = signs[case]
                text = _text(holders[key].name, uuid, why, used, limit, guilty)
                pids = tuple(process.pid for process in guilty)
                found.append(Finding(key, why, uuid, used, limit, pids, text, is_new))
        for case in [case for case in self._cases if case[0] not in holders]:
            del self._cases[case]
        return sorted(found)

    def _judge(self, case: tuple[str, str, str], is_against: bool) -> bool:
        """Whether the case stands from now on."""
        state = self._cases.setdefault(case, _Case())
        state.against = state.against + 1 if is_against else 0
        state.for_it = 0 if is_against else state.for_it + 1
        if state.for_it >= LOOKS_UNTIL_OVER:
            del self._cases[case]
        # Time has been looked at for a whole window already.
        elif not state.stands and state.against >= (1 if case[2] == TIME else LOOKS):
            state.stands = True
            return True
        return False

    def _signs(
        self, now: float, key: str, uuid: str, holder: Holder, processes: list[Process]
    ) -> Iterator[tuple[str, int, int, list[Process]]]:
        """(why, used, limit, who) of what this look shows."""
        used = sum(process.memory_bytes for process in processes)
        share = holder.shares.get(uuid)
        if share is None:
            yield ELSEWHERE, used, 0, processes
            return
        if used > share.most_bytes(len(processes)):
            yield MEMORY, used, share.memory_bytes, processes
        unknown = [process for process in processes if not process.has_shim]
        # Who has the GPU alone takes nothing from anybody.
        if unknown and not share.is_whole:
            yield UNKNOWN, sum(p.memory_bytes for p in unknown), share.memory_bytes, unknown
        most = share.ceiling_percent + MARGIN_PERCENT
        if most < 100:
            percent = self._average(now, (key, uuid), sum(p.busy_percent for p in processes))
            if percent > most:
                yield TIME, percent, share.ceiling_percent, processes

    def _average(self, now: float, place: tuple[str, str], percent: int) -> int:
        """Of the last WINDOW_SECONDS; 0 before there are as many."""
        samples = self._times.setdefault(place, deque())
        samples.append((now, min(percent, 100)))
        begin = now - WINDOW_SECONDS
        while len(samples) > 1 and samples[1][0] <= begin:
            samples.popleft()
        if samples[0][0] > begin:
            return 0
        # Each sample tells of the time since the one before.
        later = list(samples)[1:]
        busy = sum(
            (late[0] - max(early[0], begin)) * late[1] for early, late in zip(samples, later)
        )
        return round(busy / WINDOW_SECONDS)


def _text(name: str, uuid: str, why: str, used: int, limit: int, processes: list[Process]) -> str:
    who = ", ".join(f"{process.pid} ({process.command})" for process in processes[:_MOST_NAMED])
    if len(processes) > _MOST_NAMED:
        who += f" and {len(processes) - _MOST_NAMED} more"
    what = {
        MEMORY: f"holds {_size(used)} of {uuid}, its limit is {_size(limit)}",
        ELSEWHERE: f"holds {_size(used)} of {uuid}, which it was not given",
        UNKNOWN: f"goes round the shim and holds {_size(used)} of {uuid}, "
        f"its limit is {_size(limit)}",
        TIME: f"used {used} % of {uuid}'s time, its limit is {limit} %",
    }[why]
    text = f"{name} {what}: {'process' if len(processes) == 1 else 'processes'} {who}"
    # A process's name is its own choice.
    return "".join(letter if letter.isprintable() else "?" for letter in text)


def _size(size: int) -> str:
    return f"{size / (1 << 30):.2f} GiB" if size >= 1 << 30 else f"{size / (1 << 20):.1f} MiB"
