"""Suspend, resume and move a container: for `vcuda` and for the node agent.

None of these prints or exits; each ends within its time limits. Whatever fails, a container's
processes end all at work or all off the GPUs; where the driver allows neither, the record keeps its
step, and the next `repair` of any program tries again.
"""

from __future__ import annotations

import functools
import time

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
    UNTIL_CALL,
    WAITING,
    Suspension,
)
from vcuda_oci.placement.rules import Rules

from ..checkpoint import drive, steps
from ..checkpoint.drive import Progress
from ..checkpoint.targets import Targets, Unreachable, refuse_unfit
from ..checkpoint.worker import Worker
from . import elsewhere, relocation, room_wait
from .operation import Ended, Operation
from .places import (
    BACK_SECONDS,
    Done,
    bring_back,
    failed,
    library_of,
    put_off,
    put_on,
    quiet,
    refuse_without_host_room,
    report_lost,
)
from .repairs import settle
from .room_wait import Waiting

# How long to wait while another program suspends or resumes the same container.
TURN_SECONDS = 30.0


def suspend(
    ledger: Ledger,
    facts: Host,
    id: str,
    rules: Rules,
    by: str = BY_ORDER,
    seconds: float = BACK_SECONDS,
    progress: Progress = quiet,
) -> Done:
    """Take all processes of a container off the GPUs; its shares are then free for others.

    seconds: for the driver. Raises VcudaError: refused or failed; the container works on.
    """
    with Operation(ledger, id, TURN_SECONDS) as mine:
        settle(mine, facts)
        held = mine.record.suspension
        if held:
            if held.by != by and by == BY_ORDER:
                mine.let_calls_wait(by)  # no call wakes it any more
                mine.update(held.replaced(by=by))
            return Done(held.bytes, changed=False)
        refuse_unfit(mine.record, facts, by, ledger)
        with Worker(library_of(facts), mine.lock) as worker:
            worker.start()
            try:
                targets = Targets(mine.record, ledger.containers)
            except VcudaError:
                if by not in UNTIL_CALL or liveness.container_lives(mine.record):
                    raise
                # Its pod keeps the share, and nothing of it is on the GPU.
                mine.update(Suspension(SUSPENDED, by, time.time(), {}))
                return Done({})
            worker.await_ready()
            try:
                needed = refuse_without_host_room(mine, targets, worker, rules)
            except VcudaError as error:
                if by in UNTIL_CALL:  # no operator reads the answer
                    text = f"cannot suspend: {error.what}; it works on"
                    ledger.record_event(events.SUSPEND_FAILED, mine.record, text)
                raise
            mine.update(mine.begun(SUSPENDING, by, needed))
            begun = time.monotonic()
            try:
                mine.let_calls_wait(by)
                if by == BY_IDLENESS:
                    mine.refuse_if_busy()
            except VcudaError:
                put_on(mine)
                raise
            outcome = drive.bring(
                steps.OFF, targets, worker, seconds, progress, note=mine.note_found
            )
            if not outcome.reason:
                try:
                    done = put_off(mine, begun, outcome.held)
                    return done._replace(locking=outcome.locking)
                except Ended:
                    raise
                except VcudaError as error:
                    outcome = outcome._replace(reason=error.what, hint=error.hint)
            place, back = bring_back(mine, worker, quiet)
        if place == steps.OFF:
            return put_off(mine, begun, outcome.held)
        raise failed(mine, outcome if place else back, "suspend", place)


def resume(
    ledger: Ledger,
    facts: Host,
    id: str,
    rules: Rules,
    seconds: float,
    progress: Progress = quiet,
    waiting: Waiting = lambda reason: None,
    gpu: str = "",
) -> Done:
    """Bring a container back to its GPUs, as soon as there is room.

    gpu: UUID or index of the GPU that takes the place of its own one; "": its own. seconds: how
    long to wait for room; afterwards it is suspended as before. waiting: called while it waits;
    what it raises ends the wait. Raises VcudaError.
    """
    end = time.monotonic() + seconds
    with Operation(ledger, id, max(TURN_SECONDS, seconds)) as mine:
        settle(mine, facts)
        held = mine.record.suspension
        if not held:
            return Done({}, changed=False)
        closed = relocation.closed(ledger) if gpu else {}
        moves = relocation.moves_to(mine.record, facts, gpu, closed) if gpu else {}
        if moves:
            elsewhere.refuse_checkpointed(mine, mine.found)
        with Worker(library_of(facts), mine.lock) as worker:
            try:
                room_wait.take(mine, facts, rules, end, waiting, worker, moves)
            except BaseException:
                if mine.record.suspension and mine.record.suspension.step == WAITING:
                    mine.update(mine.step(SUSPENDED))
                raise
            begun = time.monotonic()
            if moves:
                return elsewhere.arrive(mine, facts, worker, progress, begun, "resume")
            try:
                place, outcome = bring_back(mine, worker, progress)
            except Unreachable:  # the driver has not been asked
                mine.update(mine.step(SUSPENDED))
                raise
        if place == steps.ON:
            put_on(mine)
            took = time.monotonic() - begun
            text = f"{gib(sum(held.bytes.values()))} back on the GPU"
            ledger.record_event(events.RESUMED, mine.record, text, took)
            report_lost(mine, outcome)
            return Done(held.bytes, outcome.lost, took)
        if place == steps.OFF:
            mine.let_calls_wait(held.by)
            mine.update(mine.step(SUSPENDED))
            report_lost(mine, outcome)
        raise failed(mine, outcome, "resume", place)


def move(
    ledger: Ledger,
    facts: Host,
    id: str,
    gpu: str,
    rules: Rules,
    seconds: float = BACK_SECONDS,
    progress: Progress = quiet,
    by: str = BY_ORDER,
) -> Done:
    """Move a container at work to another GPU, by UUID or index; its share there is claimed before
    its own one is given up.

    seconds: for the driver, to take it off. by: the reason of its suspension, should only half of
    the move succeed. Otherwise as `suspend`. Raises VcudaError: refused or
    failed; the container works on where it was, or is suspended.
    """
    with Operation(ledger, id, TURN_SECONDS) as mine:
        settle(mine, facts)
        moves = relocation.moves_to(mine.record, facts, gpu, relocation.closed(ledger))
        if mine.record.suspension:
            hint = f"run 'vcuda resume {id} --gpu {gpu}'"
            raise VcudaError("is suspended", id, hint)
        if not moves:
            relocation.leave_others(mine.record, facts)
            mine.forget_nodes_left()
            return Done({}, changed=False)
        refuse_unfit(mine.record, facts, by, ledger)
        with Worker(library_of(facts), mine.lock) as worker:
            worker.start()
            targets = Targets(mine.record, ledger.containers)
            worker.await_ready()
            needed = refuse_without_host_room(mine, targets, worker, rules)
            elsewhere.claim(mine, facts, moves, rules, needed, by)
            begun = time.monotonic()
            try:
                relocation.change_nodes(mine.record, facts, list(moves.values()), ())
                mine.let_calls_wait(by)
            except VcudaError:
                elsewhere.stay(mine, facts)
                raise
            note = functools.partial(elsewhere.note_found, mine)
            outcome = drive.bring(steps.OFF, targets, worker, seconds, progress, note=note)
            if outcome.reason:
                place, back = bring_back(mine, worker, quiet)
                elsewhere.take_nodes_back(mine, facts, moves)
                if place == steps.OFF:
                    mine.update(mine.step(SUSPENDED))
                raise failed(mine, outcome if place else back, "move", place)
            off = mine.went_off(outcome.held)
            mine.update(off.replaced(step=RESUMING, moves=moves))
            return elsewhere.arrive(mine, facts, worker, progress, begun, "move")
