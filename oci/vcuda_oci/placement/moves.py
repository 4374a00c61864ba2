"""Containers that may move between the GPUs of a node, and what is free there meanwhile: pure.

A move needs room on its new GPU beside all that is there by then, since the driver restores the
container there before another may have the old one. Memory is counted once, however often it may
be promised.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence

from ..model.allocation import GpuShare
from ..model.gpu import Gpu
from ..model.record import Record
from .rules import Rules

# How many steps a search takes at most: placements and sets of containers that it tries.
STEPS = 100_000


class Tenant(Record):
    """A container with a share of one GPU.

    to: UUIDs of the GPUs that it may move to, whatever is free there. bytes: what its processes
    hold, which a move copies.
    """

    def __init__(self, id: str, share: GpuShare, to: Collection[str], bytes: int = 0) -> None:
        self.id, self.share, self.to, self.bytes = id, share, tuple(to), bytes


class Move(Record):
    """A move of the container `id`. source, target: UUIDs. bytes: as Tenant has it."""

    def __init__(self, id: str, source: str, target: str, bytes: int = 0) -> None:
        self.id, self.source, self.target, self.bytes = id, source, target, bytes


class Exhausted(Exception):
    """The search has taken all its steps."""


class Board:
    """What is free on each GPU, in percent and bytes, while moves are tried and taken back.

    fixed: shares of containers that stay where they are. at: each tenant's GPU, by its id.
    """

    def __init__(
        self,
        gpus: Sequence[Gpu],
        fixed: Sequence[GpuShare],
        tenants: Sequence[Tenant],
        rules: Rules,
    ) -> None:
        rules = rules.once()
        self.core = {gpu.uuid: 100 for gpu in gpus}
        self.memory = {gpu.uuid: rules.promised(gpu) for gpu in gpus}
        self.fixed, self.tenants = fixed, tenants
        self.at = {tenant.id: tenant.share.uuid for tenant in tenants}
        self._steps = STEPS
        for share in (*fixed, *[tenant.share for tenant in tenants]):
            self._add(share.uuid, share, -1)

    def can_go(self, tenant: Tenant, uuid: str) -> bool:
        """Whether this is another GPU, with room for the tenant's share. Raises Exhausted."""
        self.count_step()
        share = tenant.share
        return (
            self.at[tenant.id] != uuid
            and share.core_percent <= self.core.get(uuid, -1)
            and share.memory_bytes <= self.memory[uuid]
        )

    def count_step(self) -> None:
        """Count one step of the search. Raises Exhausted."""
        self._steps -= 1
        if self._steps < 0:
            raise Exhausted

    def go(self, tenant: Tenant, uuid: str) -> Move:
        """Move a tenant, also back; the move."""
        source = self.at[tenant.id]
        self._add(source, tenant.share, 1)
        self._add(uuid, tenant.share, -1)
        self.at[tenant.id] = uuid
        return Move(tenant.id, source, uuid, tenant.bytes)

    def shares(self) -> list[GpuShare]:
        """All shares, where they are now."""
        return [*self.fixed, *[one.share.replaced(uuid=self.at[one.id]) for one in self.tenants]]

    def place(self, tenants: Sequence[Tenant], closed: Collection[str]) -> list[Move] | None:
        """Move all of these to GPUs not in `closed`; None: there is no such way, nothing is moved.

        Raises Exhausted, with nothing moved.
        """
        order = sorted(tenants, key=lambda one: (-one.share.memory_bytes, -one.share.core_percent))
        return self._place(order, closed)

    def _place(self, tenants: Sequence[Tenant], closed: Collection[str]) -> list[Move] | None:
        if not tenants:
            return []
        first, rest = tenants[0], tenants[1:]
        home, tried = self.at[first.id], set()
        # The fullest GPU first, so that the emptiest stays whole.
        for uuid in sorted(first.to, key=lambda uuid: self.core.get(uuid, -1)):
            alike = (self.core.get(uuid), self.memory.get(uuid), tuple(uuid in t.to for t in rest))
            if uuid in closed or alike in tried or not self.can_go(first, uuid):
                continue
            tried.add(alike)
            move = self.go(first, uuid)
            try:
                others = self._place(rest, closed)
            except Exhausted:
                self.go(first, home)
                raise
            if others is not None:
                return [move, *others]
            self.go(first, home)
        return None

    def _add(self, uuid: str, share: GpuShare, sign: int) -> None:
        if uuid in self.core:
            self.core[uuid] += sign * share.core_percent
            self.memory[uuid] += sign * share.memory_bytes
