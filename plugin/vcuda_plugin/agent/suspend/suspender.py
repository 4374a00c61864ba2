"""Suspends idle containers and those that give way, and resumes those with a call that waits.

Each operation runs in a thread of its own, which may wait for the driver or for room; the threads
change the ledger as `vcuda suspend` does. What is decided here can be decided anew at any time: a
new process of the agent begins with what records and pages say.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Mapping, Sequence

from vcuda_hook.suspend import control
from vcuda_hook.suspend.operation import NotIdle
from vcuda_hook.suspend.places import Done
from vcuda_hook.suspend.wait_bound import UNMEASURED_BYTES_PER_SECOND
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import (
    BY_DRAIN,
    BY_IDLENESS,
    BY_ROTATION,
    SUSPENDED,
    SUSPENDING,
    UNTIL_CALL,
    WAITING,
)
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ..ledger.records import Records
from .idleness import Idleness, Sample
from .rotation import Resident, Waiting, gpus_of, next_step
from .usage_watch import UsageWatch

# Between two polls while a container may ask to be resumed, and otherwise.
QUICK_SECONDS, SLOW_SECONDS = 0.02, 1.0
_WORK_SECONDS = 0.1
# An operation that failed is tried again after this time.
_AGAIN_SECONDS = {"suspend": 60.0, "resume": 5.0}
_WAYS = ("suspend", "resume")
# For the driver, to suspend a container.
SUSPEND_SECONDS = 120.0
# A resume waits for room as long as its container lives; then the next poll begins another.
_ROOM_SECONDS = 3600.0


def concerns(allocation: Allocation) -> bool:
    """Whether the suspender has anything to do for this container, now or later."""
    return bool(allocation.idle_suspend or allocation.rotates or allocation.suspension)


class Suspender:
    """Decides anew with each `poll`. log: called with lines for the agent's log."""

    def __init__(
        self, records: Records, facts: Host, settings: Config, log: Callable[[str], None]
    ) -> None:
        self._records, self._facts, self._settings, self._log = records, facts, settings, log
        self._usage = UsageWatch(records.ledger)
        self._idleness = Idleness()
        self._busy: dict[str, threading.Thread] = {}
        self._asked: dict[str, int] = {}
        self._asks_since: dict[str, float] = {}
        self._there_since: dict[str, float] = {}
        self._took: dict[tuple[str, str], float] = {}
        self._left_alone: dict[tuple[str, str], float] = {}
        self._seconds_per_byte = 0.0
        self._work_at = 0.0

    def poll(self, now: float) -> float:
        """Decide once; return the seconds until the next poll. now: monotonic seconds."""
        self._busy = {id: thread for id, thread in self._busy.items() if thread.is_alive()}
        mine = {one.id: one for one in self._records.read() if concerns(one)}
        self._usage.follow(mine.values())
        self._there_since = {id: at for id, at in self._there_since.items() if id in mine}
        for known in (self._took, self._left_alone):
            for key in [key for key in known if key[0] not in mine]:
                del known[key]
        off = {id for id, one in mine.items() if one.suspension and one.suspension.is_off}
        self._answer_calls(mine, off, now)
        self._end_drains(mine, off, now)
        self._note_residence(mine, off, now)
        # A container that moves to another GPU gets only room there that is promised to no other.
        waiting = [
            Waiting(id, one.shares, held.wanted, one.rotates)
            for id, one in mine.items()
            if (held := one.suspension) and held.step == WAITING and not held.moves
        ]
        # While a container waits for the GPU, an idle one has to be found soon.
        if now - self._work_at >= (_WORK_SECONDS if self._asks_since or waiting else SLOW_SECONDS):
            self._work_at = now
            self._check_work(mine, off, now)
        self._give_way(waiting, now)
        return QUICK_SECONDS if off or self._busy else SLOW_SECONDS

    def _answer_calls(self, mine: Mapping[str, Allocation], off: set[str], now: float) -> None:
        """Resume those of which a call waits."""
        for id in list(self._asked.keys() - off):
            del self._asked[id]
            self._asks_since.pop(id, None)
        for id in off:
            held = mine[id].suspension
            asked = self._usage.asked(id)
            if not held or held.by not in UNTIL_CALL or asked is None:
                continue
            if asked != self._asked.setdefault(id, asked):
                self._asks_since.setdefault(id, now)
            if id in self._asks_since:
                self._start(id, "resume", functools.partial(self._resume, mine[id]), now)

    def _end_drains(self, mine: Mapping[str, Allocation], off: set[str], now: float) -> None:
        """Resume those that a drain has suspended, once none of their GPUs is drained any more."""
        by_drain = [id for id in off if (held := mine[id].suspension) and held.by == BY_DRAIN]
        drained = unhealthy.read_drained(self._records.ledger.state_dir) if by_drain else {}
        for id in by_drain:
            if not any(share.uuid in drained for share in mine[id].shares):
                self._start(id, "resume", functools.partial(self._resume, mine[id]), now)

    def _note_residence(self, mine: Mapping[str, Allocation], off: set[str], now: float) -> None:
        for id, one in mine.items():
            if id in off:
                self._there_since.pop(id, None)
            elif one.suspension is None:
                self._there_since.setdefault(id, now)

    def _check_work(self, mine: Mapping[str, Allocation], off: set[str], now: float) -> None:
        samples = {}
        for id, one in mine.items():
            seen = self._usage.seen(id)
            if seen is None:
                continue
            may_idle = one.suspension is None and not seen.inside and id not in self._busy
            samples[id] = Sample(one.idle_suspend, seen.work, may_idle)
            # A call that was in the driver when the container gave way cannot ask.
            held = one.suspension
            if held and id in off and held.by == BY_ROTATION and seen.inside:
                self._asks_since.setdefault(id, now)
        for id in self._idleness.update(now, samples):
            self._start(id, "suspend", functools.partial(self._suspend, id, BY_IDLENESS), now)

    def _give_way(self, waiting: Sequence[Waiting], now: float) -> None:
        """Suspend containers for those that wait for room."""
        drained = unhealthy.read_drained(self._records.ledger.state_dir) if waiting else {}
        # No container gives way to one that a drained GPU keeps off.
        waiting = [one for one in waiting if not drained.keys() & gpus_of(one)]
        if not waiting:
            return
        residents = [
            self._resident(one, now)
            for one in self._records.read()
            if one.resident and not self._leaves(one)
        ]
        rules, quantum = rules_of(self._settings), self._settings.rotation_quantum
        step = next_step(now, self._facts.gpus, residents, waiting, rules, quantum)
        if step and step.at <= now:
            for id in step.victims:
                self._start(id, "suspend", functools.partial(self._suspend, id, BY_ROTATION), now)

    def _leaves(self, one: Allocation) -> bool:
        """Whether it is about to be off the GPU, so that no other one need leave in its place."""
        held = one.suspension
        return one.id in self._busy if held is None else held.step == SUSPENDING and not held.moves

    def _resident(self, one: Allocation, now: float) -> Resident:
        is_free = not self._is_left_alone(one.id, "suspend", now)
        return Resident(
            one.id,
            one.shares,
            self._there_since.get(one.id, now),
            self._idleness.seconds(one.id, now),
            one.rotates and one.suspension is None and is_free,
            self._swap(one),
        )

    def _swap(self, one: Allocation) -> float:
        """Seconds of a container's suspend and resume, as last measured, each like the other if
        only one was; or as other containers' copies took by their bytes; 0: nothing is known.
        """
        took = [self._took[key] for way in _WAYS if (key := (one.id, way)) in self._took]
        if took:
            return len(_WAYS) * sum(took) / len(took)
        held = sum(share.memory_bytes for share in one.shares)
        # Small copies may take more time per byte than large ones, and others' pages may be false.
        slowest = 1 / UNMEASURED_BYTES_PER_SECOND
        return len(_WAYS) * held * min(self._seconds_per_byte, slowest)

    def _is_left_alone(self, id: str, verb: str, now: float) -> bool:
        return now < self._left_alone.get((id, verb), 0.0)

    def _start(self, id: str, verb: str, operation: Callable[[], Done], now: float) -> None:
        """Run an operation in a thread, unless one of this container runs or has just failed."""
        if id in self._busy or self._is_left_alone(id, verb, now):
            return

        def run() -> None:
            try:
                done = operation()
                # A container that holds nothing yet does not show how long its next copy takes.
                if done.changed and (held := sum(done.bytes.values())):
                    # The GPU works until the last kernels have ended: that is no part of the swap.
                    took = self._took[id, verb] = done.seconds - done.locking
                    self._seconds_per_byte = took / held
            except NotIdle:
                self._idleness.begin_again(id)
            except VcudaError as error:
                self._left_alone[id, verb] = now + _AGAIN_SECONDS[verb]
                self._idleness.begin_again(id)
                self._log(f"cannot {verb}: {error}")

        self._busy[id] = threading.Thread(target=run, name=f"{verb} {id}", daemon=True)
        self._busy[id].start()

    def _suspend(self, id: str, by: str) -> Done:
        return control.suspend(
            self._ledger(),
            self._facts,
            id,
            rules_of(self._settings),
            by,
            SUSPEND_SECONDS,
        )

    def _resume(self, one: Allocation) -> Done:
        ledger = self._ledger()

        def is_there(reason: str) -> None:
            now = ledger.get(one.id)
            if now is None or now.claimant != one.claimant:
                raise VcudaError("its container has ended", one.id, "see 'vcuda ps'")

        return control.resume(
            ledger,
            self._facts,
            one.id,
            rules_of(self._settings),
            _ROOM_SECONDS,
            waiting=is_there,
        )

    def _ledger(self) -> Ledger:
        """A ledger of its own for each thread: its lock is one thread's."""
        return Ledger(self._records.ledger.state_dir, self._records.ledger.program)


def interrupted(records: Sequence[Allocation]) -> list[str]:
    """The ids of containers in a step that some program works on, or was killed in."""
    return [one.id for one in records if one.suspension and one.suspension.step != SUSPENDED]
