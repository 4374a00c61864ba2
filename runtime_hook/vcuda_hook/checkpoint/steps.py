"""Which driver call comes next: pure.

Suspending, resuming and repairing are one question: given the states of a container's processes and
where they shall be, which call brings them nearer? So what a killed program left is no special
case: it is a set of states.

    RUNNING --lock--> LOCKED --checkpoint--> CHECKPOINTED      to OFF
    RUNNING <-unlock- LOCKED <---restore---- CHECKPOINTED      to ON

No process is checkpointed before all are locked, and none is unlocked before all are restored: a
refusal of one then leaves no other in the middle of its work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple

# CUprocessState. Source: cuda.h
RUNNING, LOCKED, CHECKPOINTED, FAILED, CHECKPOINTING, RESTORING = range(6)

# Where all processes shall be: off the GPUs, or at work on them.
OFF, ON = "off", "on"

# Calls. WAIT and DONE are none: the driver still copies; all processes are where they shall be.
LOCK, CHECKPOINT, RESTORE, UNLOCK = "lock", "checkpoint", "restore", "unlock"
WAIT, DONE = "wait", "done"

# For each goal the calls in their order, and the state in which a process needs each.
_CALLS = {
    OFF: ((LOCK, RUNNING), (CHECKPOINT, LOCKED)),
    ON: ((RESTORE, CHECKPOINTED), (UNLOCK, LOCKED)),
}
_COPYING = (CHECKPOINTING, RESTORING)
AFTER = {LOCK: LOCKED, CHECKPOINT: CHECKPOINTED, RESTORE: LOCKED, UNLOCK: RUNNING}


class Next(NamedTuple):
    """The next call, and the pids of the processes that need it."""

    call: str
    pids: tuple[int, ...] = ()


# The state that follows a copy which was under way before the first call.
_BECOMES = {CHECKPOINTING: CHECKPOINTED, RESTORING: LOCKED}


def found(states: Mapping[int, int]) -> dict[int, int]:
    """The processes that another program has locked or checkpointed, and the state of each. states:
    before the first call.
    """
    ends = {pid: _BECOMES.get(state, state) for pid, state in states.items()}
    return {pid: state for pid, state in ends.items() if state in (LOCKED, CHECKPOINTED)}


def plan(goal: str, states: Mapping[int, int], found: Mapping[int, int] = {}) -> Next:
    """The next call towards `goal`. states: by pid, of the processes that use CUDA.

    A process that the driver has given up stays where it is and holds up no other. found: states
    by pid, beyond which ON brings no process: another program left it there.
    """
    copying = tuple(pid for pid, state in states.items() if state in _COPYING)
    for call, state in _CALLS[goal]:
        pids = tuple(
            pid
            for pid, now in states.items()
            if now == state and not (goal == ON and found.get(pid) == now)
        )
        if pids:
            return Next(call, pids)
        if copying:
            return Next(WAIT, copying)
    return Next(DONE)


def failed(states: Mapping[int, int]) -> list[int]:
    """The pids of processes that the driver has given up."""
    return sorted(pid for pid, state in states.items() if state == FAILED)
