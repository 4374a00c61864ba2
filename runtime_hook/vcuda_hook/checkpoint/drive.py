"""Bring all processes of a container to one place, off the GPUs or on, as steps.plan says."""

from __future__ import annotations

import functools
import time
from collections.abc import Callable, Collection, Container, Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import gib

from . import driver_worker, steps
from .worker import Answer, Hangs, Worker

# How long calls in flight may take to end before the container counts as busy.
LOCK_SECONDS = 10.0
_PAUSE_SECONDS = 0.05
_NOT_SUPPORTED, _OUT_OF_MEMORY, _NOT_READY, _ILLEGAL_STATE = 801, 2, 600, 401
_OPERATING_SYSTEM = 304
# What a process may take beyond what NVML reported for it: 6 MiB with driver 580 on an H200.
_MARGIN_BYTES = 64 << 20
# How long a neighbour that has ended may take to give its memory back.
ROOM_SECONDS = 3.0
_MOST_TRIES = 3

# Where the processes are now: (start times by pid).
Targets = Callable[[], Mapping[int, int]]
# Called while the driver works: the call, and of how many processes it is awaited.
Progress = Callable[[str, int], None]
# As Suspension has it.
Found = Mapping[str, Sequence[int]]


class Outcome(NamedTuple):
    """reason: "": all processes are where they shall be, except those that the driver gave up.

    hint: for the error line. lost: pids of processes that the driver gave up, or can never restore.
    held: what the processes held before the first of them went off the GPU, by UUID in bytes, as
    NVML reported it. locking: seconds until the first one went off, in which their last calls
    ended.
    """

    reason: str = ""
    hint: str = ""
    lost: tuple[int, ...] = ()
    held: Mapping[str, int] = {}
    locking: float = 0.0


def bring(
    goal: str,
    targets: Targets,
    worker: Worker,
    seconds: float,
    progress: Progress = lambda call, left: None,
    needed: Mapping[str, int] = {},
    pairs: Sequence[Sequence[str]] = (),
    found: Mapping[str, Sequence[int]] = {},
    note: Callable[[Found], None] | None = None,
    trim: Callable[[Collection[str]], None] = lambda uuids: None,
) -> Outcome:
    """Call the driver until all processes are at `goal`, or one call fails, or time is up.

    Processes that start meanwhile are found before each call. seconds: for all calls together.
    needed: what the processes hold when all are on the GPUs, by UUID in bytes. Without room for it
    none is restored: after a restore that finds too little memory, the driver (580) refuses every
    other one of that process. pairs: of a restore onto other GPUs, as driver_worker has it.
    found: processes that ON leaves as another program had them. note: called with these before the
    first call that changes a state, and again if other programs change them; it may refuse them by
    VcudaError. trim: called with the UUIDs of GPUs that have too little room for a restore, which
    then waits for some time.
    """
    begun, locking = time.monotonic(), 0.0
    end = begun + seconds
    states: Mapping[int, int] = {}
    tries: dict[tuple[int, str], int] = {}
    held: Mapping[str, int] = {}
    unrestorable: list[int] = []
    ours: set[int] = set()
    noted: Found | None = None

    def outcome(reason: str = "", hint: str = "try again") -> Outcome:
        lost = sorted({*steps.failed(states), *unrestorable})
        return Outcome(reason, hint, tuple(lost), held, locking)

    while True:
        try:
            started = targets()
            states = worker.states(started, end)
            for pid, state in states.items():
                if state == driver_worker.UNKNOWN:
                    return outcome(f"the driver refuses the state of process {pid}")
            if goal == steps.OFF and steps.failed(states):
                lost = ", ".join(map(str, steps.failed(states)))
                return outcome(f"the driver has given up process {lost}", "end that process")
            if note and (now := _found(states, started, noted or {}, ours)) != noted:
                try:
                    note(now)
                except VcudaError as error:
                    return outcome(error.what, error.hint)
                found = noted = now
            call, pids = steps.plan(goal, states, _still(found, started))
            if call == steps.DONE:
                return outcome()
            if time.monotonic() >= end:
                return outcome(f"not all processes are {goal} the GPU in {seconds:.0f} s")
            if call == steps.WAIT:
                progress(call, len(pids))
                time.sleep(_PAUSE_SECONDS)
                continue
            if call == steps.CHECKPOINT and not locking:
                locking = time.monotonic() - begun
            if call == steps.CHECKPOINT and not held:
                held = worker.memory(list(states), end).held
            if call == steps.RESTORE:
                short = _without_room(needed, worker, list(states), end, trim)
                if short:
                    return outcome(short, "end what uses the GPU beside its shares: nvidia-smi")
            call_end = min(end, time.monotonic() + LOCK_SECONDS) if call == steps.LOCK else end
            show = functools.partial(progress, call, len(pids))
            others = pairs if call == steps.RESTORE else ()
            answers = worker.call(call, started, pids, call_end, show, others)
        except Hangs as hang:
            pids_left = ", ".join(map(str, hang.pids))
            what = f"no answer of the driver to '{hang.call}' of process {pids_left}"
            return outcome(f"{what} in {hang.seconds:.0f} s", "see the kernel's log for Xid lines")
        for pid, answer in answers.items():
            refusal = _refusal(call, pid, answer)
            if answer.state == steps.AFTER[call] and answer.status != _ILLEGAL_STATE:
                ours.add(pid)
            tries[pid, call] = tries.get((pid, call), 0) + 1
            # A wrong state may be another program's doing; the next round sees the right one.
            again = answer.status == _ILLEGAL_STATE and tries[pid, call] < _MOST_TRIES
            # On the way back to work a process that is given up holds up no other.
            is_lost = goal == steps.ON and answer.state == steps.FAILED
            if refusal and not again and not is_lost:
                states = {**states, pid: answer.state}  # which may be that it is given up
                if call == steps.RESTORE and answer.status == _OPERATING_SYSTEM:
                    unrestorable.append(pid)
                return outcome(*refusal)


def _found(
    states: Mapping[int, int], started: Mapping[int, int], before: Found, ours: Container[int]
) -> Found:
    """The processes that another program has locked or checkpointed. before: as of the last round.
    ours: of which this program has changed the state: as before.
    """
    now = {str(pid): [started[pid], state] for pid, state in steps.found(states).items()}
    return {
        pid: before[pid] if int(pid) in ours else each
        for pid, each in now.items()
        if int(pid) not in ours or pid in before
    }


def _still(found: Found, started: Mapping[int, int]) -> dict[int, int]:
    """The state of each of the found processes that is among these."""
    return {
        int(pid): state for pid, (since, state) in found.items() if started.get(int(pid)) == since
    }


def held_now(pids: Sequence[int], worker: Worker) -> dict[str, int]:
    """What the processes hold on the GPUs, by UUID in bytes; {}: NVML does not answer."""
    try:
        return dict(worker.memory(pids, time.monotonic() + LOCK_SECONDS).held)
    except Hangs:
        return {}


def _without_room(
    needed: Mapping[str, int],
    worker: Worker,
    pids: Sequence[int],
    end: float,
    trim: Callable[[Collection[str]], None],
) -> str:
    """Why the processes have no room on the GPUs, after some time; "": they have. trim: called once
    with the GPUs that have too little.

    A GPU without other processes has as much room as it had for them before, also where they had
    left less than the margin. Raises Hangs.
    """
    end = min(end, time.monotonic() + ROOM_SECONDS)
    asked = False
    while True:
        now = worker.memory(pids, end + ROOM_SECONDS)
        short, full = "", []
        for uuid, bytes_needed in needed.items():
            missing = bytes_needed - now.held.get(uuid, 0)
            free = now.free.get(uuid)
            if missing <= 0 or free is None or uuid in now.alone:
                continue
            if free < missing + _MARGIN_BYTES * len(pids):
                short = f"{uuid} has {gib(free)} free, its processes need {gib(missing)}"
                full.append(uuid)
        if not short or time.monotonic() >= end:
            return short
        if not asked:
            trim(full)
            asked = True
        time.sleep(_PAUSE_SECONDS)


def _refusal(call: str, pid: int, answer: Answer) -> tuple[str, str] | None:
    """Why a call failed, and a hint; None: it did not."""
    if answer.status in (driver_worker.SUCCESS, driver_worker.GONE):
        return None
    if answer.state == steps.AFTER[call]:
        return None  # done although it says otherwise, as when it was killed half-way
    if answer.state == driver_worker.NO_CUDA:
        return None  # the process is ending
    if answer.status == _NOT_READY and call == steps.LOCK:
        what = f"process {pid} has work on the GPU that did not end in {LOCK_SECONDS:.0f} s"
        return what, "try again, or let its kernels be shorter"
    if answer.status == _NOT_SUPPORTED:
        return f"the driver cannot {call} process {pid}", UNSUPPORTED_HINT
    if answer.status == _OUT_OF_MEMORY and call == steps.RESTORE:
        what = f"the GPU had no room for process {pid}, which the driver may have lost by that"
        return what, "if a second try fails, end the process"
    if answer.status == _OPERATING_SYSTEM and call == steps.RESTORE:
        return f"the driver has lost process {pid}: it cannot restore it", "end that process"
    return f"the driver's {call} of process {pid} answers error {answer.status}", "try again"


UNSUPPORTED_HINT = (
    "managed memory, MIG, MPS and, before driver 610, memory shared between processes exclude it"
)
