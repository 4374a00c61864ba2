"""Complete what a killed program left of a container's suspend, resume or move.

The driver's own state decides; where it allows neither way, the record keeps its step.
"""

from __future__ import annotations

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.suspension import RESUMING, SUSPENDED, SUSPENDING, WAITING

from ..checkpoint import steps
from ..checkpoint.worker import Worker
from . import elsewhere
from .operation import Busy, Ended, Operation
from .places import bring_back, failed, library_of, quiet, report_lost


def repair(ledger: Ledger, facts: Host, id: str, seconds: float = 0) -> bool:
    """Complete what a killed program left; whether there was anything.

    seconds: how long to wait for a program at work, such as a call that has not ended yet. Does
    nothing where one is at work still. Raises VcudaError: the driver allows neither way now.
    """
    try:
        with Operation(ledger, id, seconds) as mine:
            return settle(mine, facts)
    except (Busy, Ended):
        return False


def settle(mine: Operation, facts: Host) -> bool:
    """Complete an interrupted step: back to work from "suspending", on to work from "resuming".

    Returns whether there was one. Raises VcudaError: the driver allows neither way.
    """
    held = mine.record.suspension
    if held is None or held.step == SUSPENDED:
        return False
    if held.step == WAITING:
        mine.update(mine.step(SUSPENDED))
        return True
    moves = held.moves and held.step == RESUMING
    with Worker(library_of(facts), mine.lock) as worker:
        if moves:
            place, outcome = elsewhere.restore(mine, facts, worker, quiet)
        else:
            place, outcome = bring_back(mine, worker, quiet)
    if place is None:
        raise failed(mine, outcome, "repair", place)
    if moves:
        pass  # the record says so already
    elif place == steps.ON:
        elsewhere.stay(mine, facts)
    else:
        mine.let_calls_wait(held.by)
        if held.moves:
            elsewhere.take_nodes_back(mine, facts, held.moves)
        mine.update(mine.went_off({}) if held.step == SUSPENDING else mine.step(SUSPENDED))
    report_lost(mine, outcome)
    text = f"an interrupted {held.step} was completed: its processes are {place} the GPU"
    kind = events.RESUMED if place == steps.ON else events.SUSPENDED
    mine.ledger.record_event(kind, mine.record, text)
    return True
