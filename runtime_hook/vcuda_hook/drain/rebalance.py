"""Move containers on one node until a request fits that does not fit as it is.

A rebalance that was killed has moved some containers, each of them wholly (control.py): nothing is
left to undo, and the next one plans from there.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import claim
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Refused
from vcuda_oci.placement.moves import Move
from vcuda_oci.placement.rearrange import making_room, needs
from vcuda_oci.placement.rules import Rules

from ..suspend import relocation
from . import drain, survey
from .drain import Begin, Result
from .drain_plan import MOVE, Step
from .survey import Found


class Proposal(NamedTuple):
    """What makes a request fit.

    moves: []: it fits already; None: no moves make it fit. refused: why it does not fit now.
    unmoved: containers that cannot be moved.
    """

    moves: list[Move] | None
    refused: Refused | None = None
    unmoved: Sequence[Found] = ()


def proposed(
    ledger: Ledger, facts: Host, request: Request, rules: Rules, failed: Collection[str] = ()
) -> Proposal:
    """The moves, the fewest bytes first; nothing is changed.

    failed: ids of containers that stay. Raises VcudaError: a record is broken.
    """
    closed = relocation.closed(ledger)
    seen = survey.survey(ledger, facts, closed)
    movable = [one for one in seen.found if one.to and one.record.id not in failed]

    def refusal(taken: Sequence[GpuShare]) -> Refused | None:
        chosen = claim.place(facts, taken, request, rules, closed)
        return chosen if isinstance(chosen, Refused) else None

    moves = making_room(
        facts.gpus,
        seen.beside(movable),
        [one.tenant for one in movable],
        needs(request.parts, [gpu.memory_bytes for gpu in facts.gpus]),
        lambda taken: refusal(taken) is None,
        rules,
    )
    now = refusal(seen.beside(())) if moves != [] else None
    return Proposal(moves, now, [one for one in seen.found if one.unmoved])


def rebalance(
    ledger: Ledger,
    facts: Host,
    request: Request,
    rules: Rules,
    seconds: float,
    begin: Begin,
) -> tuple[Proposal, list[Result]]:
    """Move containers until the request fits, or no moves make it fit. Returns the last proposal,
    and the moves that were made.

    seconds: as drain.drain. Raises VcudaError: a drain or rebalance is at work.
    """
    results: list[Result] = []
    failed: set[str] = set()
    with drain.alone(ledger):
        drain.repair_all(ledger, facts)
        while True:
            left = proposed(ledger, facts, request, rules, failed)
            if not left.moves:
                return left, results
            move = left.moves[0]
            step = Step(move.id, MOVE, move.bytes, move.target)
            results.append(drain.carry_out(ledger, facts, step, rules, seconds, begin(step)))
            # Each container is moved once at most, so that the loop ends while others fill GPUs.
            failed.add(move.id)
