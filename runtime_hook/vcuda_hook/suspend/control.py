"""Suspend, resume and repair a container: for `vcuda` and for the node agent.

None of these prints or exits; each ends within its time limits. Whatever fails, a container's
processes end all at work or all off the GPUs; where the driver allows neither, the record keeps its
step, and the next `repair` of any program tries again.
"""

from __future__ import annotations

import time
from collections.abc import Mapping
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import gib
from vcuda_oci.model.suspension import (
    BY_IDLENESS,
    BY_ORDER,
    SUSPENDED,
    SUSPENDING,
    WAITING,
)

from . import drive, host_room, room_wait, steps
from .drive import Outcome, Progress
from .operation import Busy, Ended, Operation
from .room_wait import Waiting
from .targets import Targets, Unreachable, refuse_unfit
from .worker import Worker

# How long the driver may take to go back after a failure, or to complete a resume.
BACK_SECONDS = 600.0
# How long to wait while another program suspends or resumes the same container.
TURN_SECONDS = 30.0


class Done(NamedTuple):
    """bytes: what the container holds, by GPU. lost: pids of processes that the driver gave up.
    seconds: for which its calls waited beside the wait for room. changed: False: it was so already.
    """

    bytes: dict[str, int]
    lost: tuple[int, ...] = ()
    seconds: float = 0.0
    changed: bool = True


def quiet(call: str, left: int) -> None:
    """No progress."""


def suspend(
    ledger: Ledger,
    facts: Host,
    id: str,
    by: str = BY_ORDER,
    seconds: float = BACK_SECONDS,
    progress: Progress = quiet,
    most_kept: int = 0,
) -> Done:
    """Take all processes of a container off the GPUs; its shares are then free for others.

    seconds: for the driver. most_kept: bytes that suspended containers may keep in the host's
    memory; 0: no bound. Raises VcudaError: refused or failed; the container works on.
    """
    with Operation(ledger, id, TURN_SECONDS) as mine:
        _settle(mine, facts)
        held = mine.record.suspension
        if held:
            if held.by != by and by == BY_ORDER:
                mine.let_calls_wait(by)  # no call wakes it any more
                mine.update(held.replaced(by=by))
            return Done(held.bytes, changed=False)
        refuse_unfit(mine.record, facts)
        with Worker(library_of(facts), mine.lock) as worker:
            worker.start()
            targets = Targets(mine.record)
            worker.await_ready()
            needed = drive.held_now(targets, worker)
            _refuse_without_host_room(mine, needed, targets, most_kept)
            mine.update(mine.begun(SUSPENDING, by, needed))
            begun = time.monotonic()
            try:
                mine.let_calls_wait(by)
                if by == BY_IDLENESS:
                    mine.refuse_if_busy()
            except VcudaError:
                _is_on(mine)
                raise
            outcome = drive.bring(steps.OFF, targets, worker, seconds, progress)
            if not outcome.reason:
                try:
                    return _is_off(mine, begun, outcome.held)
                except Ended:
                    raise
                except VcudaError as error:
                    outcome = outcome._replace(reason=error.what, hint=error.hint)
            place, back = _bring_either(mine, worker, (steps.ON, steps.OFF), quiet)
        if place == steps.OFF:
            return _is_off(mine, begun, outcome.held)
        raise _failed(mine, outcome if place else back, "suspend", place)


def resume(
    ledger: Ledger,
    facts: Host,
    id: str,
    overcommit: float,
    seconds: float,
    progress: Progress = quiet,
    waiting: Waiting = lambda reason: None,
) -> Done:
    """Bring a container back to its GPUs, as soon as there is room.

    seconds: how long to wait for room; afterwards it is suspended as before. waiting: called while
    it waits; what it raises ends the wait. Raises VcudaError.
    """
    end = time.monotonic() + seconds
    with Operation(ledger, id, max(TURN_SECONDS, seconds)) as mine:
        _settle(mine, facts)
        held = mine.record.suspension
        if not held:
            return Done({}, changed=False)
        with Worker(library_of(facts), mine.lock) as worker:
            try:
                room_wait.take(mine, facts, overcommit, end, waiting, worker)
            except BaseException:
                if mine.record.suspension and mine.record.suspension.step == WAITING:
                    mine.update(mine.step(SUSPENDED))
                raise
            begun = time.monotonic()
            try:
                place, outcome = _bring_either(mine, worker, (steps.ON, steps.OFF), progress)
            except Unreachable:  # the driver has not been asked
                mine.update(mine.step(SUSPENDED))
                raise
        if place == steps.ON:
            _is_on(mine)
            took = time.monotonic() - begun
            text = f"{gib(sum(held.bytes.values()))} back on the GPU"
            ledger.record_event(events.RESUMED, mine.record, text, took)
            _report_lost(mine, outcome)
            return Done(held.bytes, outcome.lost, took)
        if place == steps.OFF:
            mine.let_calls_wait(held.by)
            mine.update(mine.step(SUSPENDED))
            _report_lost(mine, outcome)
        raise _failed(mine, outcome, "resume", place)


def repair(ledger: Ledger, facts: Host, id: str) -> bool:
    """Complete what a killed program left; whether there was anything.

    Does nothing where a program is at work. Raises VcudaError: the driver allows neither way now.
    """
    try:
        with Operation(ledger, id, 0) as mine:
            return _settle(mine, facts)
    except (Busy, Ended):
        return False


def _refuse_without_host_room(
    mine: Operation, held: Mapping[str, int], targets: Targets, most_kept: int
) -> None:
    """Raises VcudaError: the host's memory has no room for what the container holds."""
    kept = host_room.kept_by(mine.ledger.read()[0], mine.id)
    limits = host_room.limits_of(targets.cgroups)
    refused = host_room.refusal(sum(held.values()), limits, kept, most_kept)
    if refused:
        raise VcudaError(refused[0], mine.id, refused[1])


def library_of(facts: Host) -> str:
    return f"{facts.folder}/libcuda.so.{facts.version}"


def _settle(mine: Operation, facts: Host) -> bool:
    """Complete an interrupted step: back to work from "suspending", on to work from "resuming".

    Returns whether there was one. Raises VcudaError: the driver allows neither way.
    """
    held = mine.record.suspension
    if held is None or held.step == SUSPENDED:
        return False
    if held.step == WAITING:
        mine.update(mine.step(SUSPENDED))
        return True
    with Worker(library_of(facts), mine.lock) as worker:
        place, outcome = _bring_either(mine, worker, (steps.ON, steps.OFF), quiet)
    if place is None:
        raise _failed(mine, outcome, "repair", place)
    if place == steps.ON:
        _is_on(mine)
    else:
        mine.let_calls_wait(held.by)
        mine.update(mine.went_off({}) if held.step == SUSPENDING else mine.step(SUSPENDED))
    _report_lost(mine, outcome)
    text = f"an interrupted {held.step} was completed: its processes are {place} the GPU"
    kind = events.RESUMED if place == steps.ON else events.SUSPENDED
    mine.ledger.record_event(kind, mine.record, text)
    return True


def _bring_either(
    mine: Operation, worker: Worker, places: tuple[str, str], progress: Progress
) -> tuple[str | None, Outcome]:
    """Bring the processes to the first of the places, or else to the other.

    Returns the place, and how the first went; None: the driver allows neither. Raises Unreachable
    before the driver has been asked.
    """
    first = None
    for place in places:
        try:
            worker.start()
            targets = _targets(mine)
            if targets is None:
                return place, Outcome("", "", (), {})  # nothing is left to bring anywhere
            held = mine.record.suspension
            needed = held.needed if held else {}
            outcome = drive.bring(place, targets, worker, BACK_SECONDS, progress, needed)
        except VcudaError as error:
            if first is None and isinstance(error, Unreachable):
                raise
            outcome = Outcome(error.what, error.hint, (), {})
        first = first or outcome
        if not outcome.reason:
            return place, first._replace(lost=tuple({*first.lost, *outcome.lost}))
    return None, first or Outcome("", "", (), {})


def _targets(mine: Operation) -> Targets | None:
    """The container's processes; None: it has ended. Raises VcudaError as Targets does."""
    try:
        return Targets(mine.record)
    except VcudaError:
        if liveness.container_lives(mine.record):
            raise
        return None


def _is_off(mine: Operation, begun: float, needed: Mapping[str, int]) -> Done:
    """begun: monotonic. needed: as Suspension has it."""
    held = mine.went_off(needed)
    mine.update(held)
    took = time.monotonic() - begun
    text = f"{gib(sum(held.bytes.values()))} off the GPU, by {held.by}"
    mine.ledger.record_event(events.SUSPENDED, mine.record, text, took)
    return Done(held.bytes, (), took)


def _is_on(mine: Operation) -> None:
    mine.let_calls_go_on()
    mine.update(None)


def _report_lost(mine: Operation, outcome: Outcome) -> None:
    for pid in outcome.lost:
        text = f"the driver has given up process {pid}; end it"
        mine.ledger.record_event(events.LOST, mine.record, text)


def _failed(mine: Operation, outcome: Outcome, verb: str, place: str | None) -> VcudaError:
    """Bring record and page to `place`; the error with the reason of the failure."""
    if place == steps.ON:
        _is_on(mine)
        _report_lost(mine, outcome)
    now = {steps.ON: "it works on", steps.OFF: "it stays suspended"}.get(
        place or "", "some of its processes stay locked; the next repair tries again"
    )
    text = f"cannot {verb}: {outcome.reason}; {now}"
    mine.ledger.record_event(events.SUSPEND_FAILED, mine.record, text)
    return VcudaError(f"{outcome.reason}; {now}", mine.id, outcome.hint)
