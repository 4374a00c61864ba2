"""Suspend, resume and repair a container: for `vcuda` and for the node agent.

None of these prints or exits; each ends within its time limits. Whatever fails, a container's
processes end all at work or all off the GPUs; where the driver allows neither, the record keeps its
step, and the next `repair` of any program tries again.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import gib
from vcuda_oci.model.suspension import (
    BY_IDLENESS,
    BY_ORDER,
    RESUMING,
    SUSPENDED,
    SUSPENDING,
    WAITING,
)
from vcuda_oci.placement.eligible import Refused

from . import drive, room, steps
from .drive import Outcome, Progress
from .operation import Busy, Ended, Operation
from .targets import Targets, refuse_unfit
from .worker import Worker

# How long the driver may take to go back after a failure, or to complete a resume.
BACK_SECONDS = 600.0
# How long to wait while another program suspends or resumes the same container.
TURN_SECONDS = 30.0
_LOOK_SECONDS = 0.2  # between looks for room
_SWEEP_SECONDS = 2.0  # between sweeps, which ask low-level runtimes

# Whether a program may still wait: called while there is no room, with the reason.
Waiting = Callable[[str], None]


class Done(NamedTuple):
    """bytes: what the container holds, by GPU. lost: pids of processes that the driver gave up.
    seconds: what the driver took. changed: False: it was so already.
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
) -> Done:
    """Take all processes of a container off the GPUs; its shares are then free for others.

    seconds: for the driver. Raises VcudaError: refused or failed; the container works on.
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
        targets = Targets(mine.record)
        with Worker(library_of(facts), mine.lock) as worker:
            mine.update(mine.begun(SUSPENDING, by))
            try:
                mine.let_calls_wait(by)
                if by == BY_IDLENESS:
                    mine.refuse_if_busy()
            except VcudaError:
                _is_on(mine)
                raise
            begun = time.monotonic()
            outcome = drive.bring(steps.OFF, targets, worker, seconds, progress)
        took = time.monotonic() - begun
        if not outcome.reason:
            try:
                return _is_off(mine, took)
            except Ended:
                raise
            except VcudaError as error:
                outcome = outcome._replace(reason=error.what, hint=error.hint)
        place, back = _bring_either(mine, facts, (steps.ON, steps.OFF), BACK_SECONDS, quiet)
        if place == steps.OFF:
            return _is_off(mine, took)
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
        try:
            _take_room(mine, facts, overcommit, end, waiting)
            targets = _targets(mine)
        except BaseException:
            # Nothing has been asked of the driver.
            if mine.record.suspension and mine.record.suspension.step != SUSPENDED:
                mine.update(mine.step(SUSPENDED))
            raise
        begun = time.monotonic()
        places = (steps.ON, steps.OFF)
        place, outcome = _bring_either(mine, facts, places, BACK_SECONDS, progress, targets)
        took = time.monotonic() - begun
        if place == steps.ON:
            _is_on(mine)
            text = f"{gib(sum(held.bytes.values()))} back on the GPU"
            ledger.record_event(events.RESUMED, mine.record, text, took)
            _report_lost(mine, outcome)
            return Done(held.bytes, outcome.lost, took)
        if place == steps.OFF:
            mine.let_calls_wait(held.by)
            mine.update(mine.step(SUSPENDED))
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
    place, outcome = _bring_either(mine, facts, (steps.ON, steps.OFF), BACK_SECONDS, quiet)
    if place is None:
        raise _failed(mine, outcome, "repair", place)
    if place == steps.ON:
        _is_on(mine)
    else:
        mine.let_calls_wait(held.by)
        mine.update(mine.went_off() if held.step == SUSPENDING else mine.step(SUSPENDED))
    _report_lost(mine, outcome)
    text = f"an interrupted {held.step} was completed: its processes are {place} the GPU"
    kind = events.RESUMED if place == steps.ON else events.SUSPENDED
    mine.ledger.record_event(kind, mine.record, text)
    return True


def _bring_either(
    mine: Operation,
    facts: Host,
    places: tuple[str, str],
    seconds: float,
    progress: Progress,
    targets: Targets | None = None,
) -> tuple[str | None, Outcome]:
    """Bring the processes to the first of the places, or else to the other.

    targets: found for the first place already. Returns the place, and how the first went; None: the
    driver allows neither. Raises VcudaError: the container is paused.
    """
    first = None
    for place in places:
        targets = targets or _targets(mine)
        if targets is None:
            return place, Outcome("", "", (), {})  # nothing is left to bring anywhere
        try:
            with Worker(library_of(facts), mine.lock) as worker:
                outcome = drive.bring(place, targets, worker, seconds, progress)
        except VcudaError as error:
            outcome = Outcome(error.what, error.hint, (), {})
        first, targets = first or outcome, None
        if not outcome.reason:
            return place, first._replace(lost=outcome.lost)
    return None, first or Outcome("", "", (), {})


def _targets(mine: Operation) -> Targets | None:
    """The container's processes; None: it has ended. Raises VcudaError: it is paused."""
    try:
        return Targets(mine.record)
    except VcudaError:
        if liveness.container_lives(mine.record):
            raise
        return None


def _is_off(mine: Operation, took: float) -> Done:
    held = mine.went_off()
    mine.update(held)
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


def _take_room(
    mine: Operation, facts: Host, overcommit: float, end: float, waiting: Waiting
) -> None:
    """Wait until there is room, and take it: the record is "resuming" then.

    Raises VcudaError: there was none in time.
    """
    swept = 0.0
    wanted = time.time()
    while True:
        waiters = _waiters(mine)
        with mine.ledger:
            refused = _refusal(mine, facts, overcommit, waiters, wanted)
            if refused and time.monotonic() - swept >= _SWEEP_SECONDS:
                swept = time.monotonic()
                if mine.ledger.sweep(liveness.is_alive):
                    refused = _refusal(mine, facts, overcommit, waiters, wanted)
            if not refused:
                mine.write(mine.step(RESUMING))
                return
            if time.monotonic() >= end:
                raise VcudaError(f"there is no room: {refused.reason}", mine.id, refused.hint)
            if mine.record.suspension and mine.record.suspension.step != WAITING:
                mine.write(mine.step(WAITING, wanted))
        waiting(refused.reason)
        time.sleep(min(_LOOK_SECONDS, max(0.0, end - time.monotonic())))


def _refusal(
    mine: Operation, facts: Host, overcommit: float, waiters: set[str], wanted: float
) -> Refused | None:
    records, broken = mine.ledger.read()
    if broken:
        path, reason = broken[0]
        raise VcudaError(f"is not a whole record ({reason})", path, "see 'vcuda ps'")
    as_waiter = mine.record.replaced(suspension=mine.step(WAITING, wanted))
    return room.refusal(as_waiter, records, facts.gpus, overcommit, waiters)


def _waiters(mine: Operation) -> set[str]:
    """The ids of waiting records of which a program still waits."""
    found = set()
    for record in mine.ledger.read()[0]:
        held = record.suspension
        if record.id != mine.id and held and held.step == WAITING:
            try:
                with Operation(mine.ledger, record.id, 0):
                    pass  # nothing waits; the next repair says so
            except Busy:
                found.add(record.id)
            except VcudaError:
                pass
    return found
