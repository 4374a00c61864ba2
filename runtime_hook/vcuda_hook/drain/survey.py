"""The containers on the GPUs, and which of them can be moved or suspended, for plans."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import instance_records, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.suspension import BY_DRAIN
from vcuda_oci.placement import eligible
from vcuda_oci.placement.moves import Tenant

from ..checkpoint import targets
from ..live import status, usage
from ..suspend import relocation

Why = tuple[str, str]  # a reason and a hint
_STATES = {
    "paused": ("its container is paused", "unpause it first"),
    status.CLAIMING: ("its container is being created", "try again"),
    status.UNKNOWN: ("its runtime does not answer", "run 'vcuda doctor'"),
}


class Found(NamedTuple):
    """A container that holds GPUs.

    bytes: what its processes hold by its own usage page, at most its shares. to: UUIDs of the GPUs
    that it may be moved to, whatever is free there. unmoved, unsuspended: why it cannot be; None:
    it can.
    """

    record: Allocation
    bytes: int
    to: tuple[str, ...]
    unmoved: Why | None
    unsuspended: Why | None

    @property
    def tenant(self) -> Tenant:
        """The container as placement moves it; it has a share of one GPU."""
        return Tenant(self.record.id, self.record.shares[0], self.to, self.bytes)


class Survey(NamedTuple):
    """The containers of a node.

    found: those at work. asleep: the suspended ones. fixed: the shares that placement counts,
    without those of `found`.
    """

    found: Sequence[Found]
    asleep: Sequence[Allocation]
    fixed: Sequence[GpuShare]

    def beside(self, tenants: Sequence[Found]) -> list[GpuShare]:
        """All shares without those of `tenants`."""
        ids = {one.record.id for one in tenants}
        others = [one.record for one in self.found if one.record.id not in ids]
        return [*self.fixed, *[share for other in others for share in other.reserved]]


def survey(ledger: Ledger, facts: Host, closed: Mapping[str, str]) -> Survey:
    """Ask ledger, runtimes and usage pages; containers that have ended are left out.

    closed: as relocation.closed. Raises VcudaError: a record is broken.
    """
    records = ledger.read_all()
    words = [one.word for one in status.statuses(records)]
    there = [
        (one, word)
        for one, word in zip(records, words)
        if word not in (status.GONE, "stopped") or liveness.is_alive(one)
    ]
    found, asleep, fixed = [], [], []
    for record, word in there:
        if record.suspension and record.suspension.is_off:
            asleep.append(record)
            fixed += record.reserved
        elif word not in (status.GONE, "stopped"):
            found.append(_found(ledger, facts, record, word, closed))
        else:
            fixed += record.reserved
    taken = [share for record, _ in there for share in record.reserved]
    fixed += instance_records.taken(ledger.state_dir, facts.gpus, taken)
    return Survey(found, asleep, fixed)


def _found(
    ledger: Ledger, facts: Host, record: Allocation, word: str, closed: Mapping[str, str]
) -> Found:
    sample = usage.take_sample(ledger, record)
    held = sum(gpu.held_bytes for gpu in sample.gpus) if sample else 0
    held = min(held, sum(share.memory_bytes for share in record.shares))
    busy = ("another verb works on it", "try again") if record.suspension else _STATES.get(word)
    unsuspended = busy or _unfit(record, facts, ledger)
    to, why = _targets(record, facts, closed)
    return Found(record, held, () if unsuspended else to, unsuspended or why, unsuspended)


def _unfit(record: Allocation, facts: Host, ledger: Ledger) -> Why | None:
    try:
        targets.refuse_unfit(record, facts, BY_DRAIN, ledger)
    except VcudaError as error:
        return error.what, error.hint
    return None


def _targets(
    record: Allocation, facts: Host, closed: Mapping[str, str]
) -> tuple[tuple[str, ...], Why | None]:
    """The GPUs that it may be moved to, or why there is none."""
    own = [share.uuid for share in record.shares]
    to, why = [], None
    for gpu in facts.gpus:
        if gpu.uuid in own or gpu.mig is not None:
            continue
        refused: Why | None = relocation.refusal(record, facts, gpu)
        if refused is None and gpu.uuid in closed:
            refused = eligible.closed(gpu.uuid, closed[gpu.uuid]), "name another GPU"
        if refused is None:
            to.append(gpu.uuid)
        why = why or refused
    return tuple(to), None if to else why or ("there is no other GPU", "add one")
