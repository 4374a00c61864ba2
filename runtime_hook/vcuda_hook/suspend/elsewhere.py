"""A container on its way to other GPUs: relocation.py says which can go, drive.py calls the driver.

    record "suspending" with moves: both shares are taken; nodes of the new GPU; page, driver
    record "resuming" with moves:   the new share is taken; nodes, page with the new GPU, driver
    record without suspension:      its shares are of the new GPU

A repair of the first brings the container back to work on the old GPU, of the second to work on the
new one. If the driver has restored no process there yet, the second may also end as "suspended",
with the old GPU's share.
"""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import events, liveness, unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import gib
from vcuda_oci.model.suspension import SUSPENDED, SUSPENDING
from vcuda_oci.placement import eligible
from vcuda_oci.placement.rules import Rules

from ..checkpoint import drive, steps
from ..checkpoint.drive import Outcome, Progress
from ..checkpoint.worker import Hangs, Worker
from . import relocation
from .operation import Operation
from .places import Done, bring, failed, put_on, report_lost, targets_of


def claim(
    mine: Operation,
    facts: Host,
    moves: Mapping[str, str],
    rules: Rules,
    needed: Mapping[str, int],
    by: str,
) -> None:
    """Claim the share on the new GPU beside the old one.

    Raises VcudaError: there is no room, or the new GPU gets no containers.
    """
    begun = mine.begun(SUSPENDING, by, dict(needed)).replaced(moves=dict(moves))
    with mine.ledger:
        mine.ledger.sweep(liveness.is_alive)
        refused = relocation.room(mine.record, mine.ledger.read_all(), facts.gpus, moves, rules)
        if refused:
            raise VcudaError(f"there is no room: {refused.reason}", mine.id, refused.hint)
        closed = unhealthy.reasons(mine.ledger.state_dir)
        for uuid in moves.values():
            if uuid in closed:  # since `moves_to` has looked
                raise VcudaError(eligible.closed(uuid, closed[uuid]), mine.id, "name another GPU")
        mine.write(begun)


def refuse_checkpointed(mine: Operation, found: drive.Found) -> None:
    """Refuse a move with processes that another program has checkpointed: it would restore them to
    the old GPU. Raises VcudaError.
    """
    there = [pid for pid, (_, state) in found.items() if state == steps.CHECKPOINTED]
    if there:
        what = f"process {there[0]} is checkpointed, not by vcuda"
        raise VcudaError(what, mine.id, "let the program that did so restore it first")


def note_found(mine: Operation, found: drive.Found) -> None:
    """As Operation has it. Raises VcudaError too where `refuse_checkpointed` does."""
    refuse_checkpointed(mine, found)
    mine.note_found(found)


def stay(mine: Operation, facts: Host) -> None:
    """End a move before the container has left its GPU."""
    moves = mine.record.suspension.moves if mine.record.suspension else {}
    if moves:
        take_nodes_back(mine, facts, moves)
    put_on(mine)


def take_nodes_back(mine: Operation, facts: Host, moves: Mapping[str, str]) -> None:
    """Have the container open its own GPUs only."""
    _change_nodes(mine, facts, list(moves), list(moves.values()))


def _change_nodes(
    mine: Operation, facts: Host, allowed: Sequence[str], denied: Sequence[str]
) -> VcudaError | None:
    """Call relocation.change_nodes; return why it failed, and record that as an event. The node
    agent may not enter a container, so it leaves the other GPU's node in the record (nodes_left),
    and the next verb that moves containers takes the node away.
    """
    left = {*mine.record.nodes_left, *(mine.nodes_left or ())} - {*allowed}
    try:
        relocation.change_nodes(mine.record, facts, allowed, denied)
    except VcudaError as error:
        mine.nodes_left = sorted({*left, *denied})
        text = f"it may still open {', '.join(denied)}, until the next verb that moves; {error}"
        mine.ledger.record_event(events.SUSPEND_FAILED, mine.record, text)
        return error
    mine.nodes_left = sorted(left - {*denied})
    return None


def settle_nodes(ledger: Ledger, facts: Host) -> None:
    """Take the nodes away that interrupted moves have left to containers; none is waited for."""
    for one in ledger.read()[0]:
        if not one.nodes_left or (one.suspension and one.suspension.moves):
            continue
        try:
            with Operation(ledger, one.id, 0) as mine:
                relocation.leave_others(mine.record, facts)
                mine.forget_nodes_left()
        except VcudaError:
            pass  # it has ended, another verb works on it, or the next one tries again


def arrive(
    mine: Operation, facts: Host, worker: Worker, progress: Progress, begun: float, verb: str
) -> Done:
    """Restore the container onto its new GPUs. Raises VcudaError: it is suspended, or the next
    repair tries again.
    """
    held = mine.record.suspension
    place, outcome = restore(mine, facts, worker, progress)
    if place == steps.ON and held:
        took = time.monotonic() - begun
        there = ", ".join(held.moves.values())
        text = f"{gib(sum(held.bytes.values()))} moved to {there}"
        mine.ledger.record_event(events.RESUMED, mine.record, text, took)
        report_lost(mine, outcome)
        return Done(held.bytes, outcome.lost, took)
    raise failed(mine, outcome, verb, place)


def restore(
    mine: Operation, facts: Host, worker: Worker, progress: Progress
) -> tuple[str | None, Outcome]:
    """From "resuming" with moves to work on the new GPUs, or back to "suspended" if the driver has
    restored no process there.

    Each step may have been done before. Returns the place and how it went; None: some processes are
    on the new GPUs, and the others could not be brought there.
    """
    held = mine.record.suspension
    moves = held.moves if held else {}
    needed: dict[str, int] = {}
    for uuid, size in (held.needed if held else {}).items():
        there = moves.get(uuid, uuid)
        needed[there] = needed.get(there, 0) + size
    without_nodes = _change_nodes(mine, facts, list(moves.values()), list(moves))
    try:
        if without_nodes and none_is_there(mine, worker):
            raise without_nodes
        mine.name_gpus(moves)
        targets = targets_of(mine)
        if targets is None:
            outcome = Outcome()  # it has ended: nothing is left to bring anywhere
        else:
            pairs = relocation.pairs(mine.record.shares, moves)
            outcome = bring(mine, steps.ON, targets, worker, progress, needed, pairs)
    except VcudaError as error:
        outcome = Outcome(error.what, error.hint)
    if not outcome.reason:
        mine.let_calls_go_on()
        mine.end_move()
        return steps.ON, outcome
    if not none_is_there(mine, worker):
        return None, outcome
    mine.name_gpus({})
    take_nodes_back(mine, facts, moves)
    mine.update(mine.step(SUSPENDED))
    return steps.OFF, outcome


def none_is_there(mine: Operation, worker: Worker) -> bool:
    """Whether the driver has restored no process onto the new GPUs, nor is about to."""
    try:
        targets = targets_of(mine)
        worker.start()
        end = time.monotonic() + drive.LOCK_SECONDS
        states = worker.states(targets(), end).values() if targets else ()
    except (Hangs, VcudaError):
        return False
    return set(states) <= {steps.CHECKPOINTED, steps.FAILED}
