"""Wait until a suspended container has room on its GPUs, in its turn among others that wait."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Mapping

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import liveness, unhealthy
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import RESUMING, WAITING, Suspension
from vcuda_oci.placement.eligible import Refused
from vcuda_oci.placement.rules import Rules

from ..checkpoint.worker import Worker
from . import room
from .operation import Busy, Operation

# Between readings of the ledger without any change in it, and between polls for a change.
_READ_SECONDS, _POLL_SECONDS = 0.2, 0.01
_SWEEP_SECONDS = 2.0  # between sweeps, which ask low-level runtimes

# Whether a program may still wait: called while there is no room, with the reason.
Waiting = Callable[[str], None]


def take(
    mine: Operation,
    facts: Host,
    rules: Rules,
    end: float,
    waiting: Waiting,
    worker: Worker,
    moves: Mapping[str, str] = {},
) -> None:
    """Wait until there is room, and take it: the record is "resuming" then, with these moves.

    end: monotonic. worker: started once the container is the next, since a start may take longer
    than the copy. Raises VcudaError: there was none in time.
    """
    swept = 0.0
    waits = mine.step(WAITING, time.time()).replaced(moves=dict(moves))
    while True:
        waiters = _waiters(mine)
        with mine.ledger:
            refused, is_next = _ask(mine, facts, rules, waiters, waits)
            if refused and time.monotonic() - swept >= _SWEEP_SECONDS:
                swept = time.monotonic()
                if mine.ledger.sweep(liveness.is_alive):
                    refused, is_next = _ask(mine, facts, rules, waiters, waits)
            if not refused:
                mine.write(waits.replaced(step=RESUMING, wanted=0))
                return
            if time.monotonic() >= end:
                raise VcudaError(f"there is no room: {refused.reason}", mine.id, refused.hint)
            if mine.record.suspension and mine.record.suspension.step != WAITING:
                mine.write(waits)
            seen = _changed(mine)
        if is_next:
            worker.start()
        waiting(refused.reason)
        _await_change(mine, seen, min(end, time.monotonic() + _READ_SECONDS))


def _ask(
    mine: Operation, facts: Host, rules: Rules, waiters: set[str], waits: Suspension
) -> tuple[Refused | None, bool]:
    """Why there is no room, None: there is; and whether no other container comes before it."""
    records = mine.ledger.read_all()
    as_waiter = mine.record.replaced(suspension=waits)
    drained = unhealthy.read_drained(mine.ledger.state_dir)
    refused = room.refusal(as_waiter, records, facts.gpus, rules, waiters, drained)
    return refused, not room.earlier(as_waiter, records, waiters)


def _changed(mine: Operation) -> int:
    """When a record was last written or removed, in nanoseconds."""
    return os.stat(mine.ledger.allocations).st_mtime_ns


def _await_change(mine: Operation, seen: int, end: float) -> None:
    """Return soon after another program has written a record, at the latest at `end`."""
    while (left := end - time.monotonic()) > 0:
        time.sleep(min(_POLL_SECONDS, left))
        if _changed(mine) != seen:
            return


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
