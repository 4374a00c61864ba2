"""Plan the moves that empty a GPU, or that make room for a request: pure.

Each move of a plan is valid when its turn comes, and no container is ever without a place: a plan
that is cut short leaves every container at work.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from itertools import combinations

from ..model.allocation import GpuShare
from ..model.gpu import Gpu
from ..model.record import Record
from ..model.request import Part
from .moves import Board, Exhausted, Move, Tenant
from .rules import Rules

# Whether the request fits beside these shares.
Fits = Callable[[Sequence[GpuShare]], bool]

# With more containers on a GPU than this, _sets has only sets of one and two of them, and those of
# the N that hold least; `emptying` tries all of them together, then one by one.
_MOST_SETS_OF = 10


class Need(Record):
    """What one share of a request takes of a GPU, at least; core_percent 100: all of it."""

    def __init__(self, core_percent: int, memory_bytes: int = 0) -> None:
        self.core_percent, self.memory_bytes = core_percent, memory_bytes


def needs(parts: Sequence[Part], sizes: Sequence[int]) -> list[Need]:
    """What the parts of a request take, at least. sizes: bytes of each GPU that they may get."""
    return [
        Need(core, 0 if core == 100 else min((part.memory_of(core, at) for at in sizes), default=0))
        for part in parts
        for core in part.sizes
    ]


def emptying(
    gpus: Sequence[Gpu],
    fixed: Sequence[GpuShare],
    tenants: Sequence[Tenant],
    source: str,
    rules: Rules,
) -> list[Move]:
    """The moves that take as many tenants as possible off the GPU `source`.

    gpus: of the node; Tenant.to names those that a tenant may go to. fixed: shares that stay. Of
    equally many tenants those are moved that hold most.
    """
    others = [gpu for gpu in gpus if gpu.uuid != source]
    board = Board(others, fixed, tenants, rules)
    mine = [one for one in tenants if one.share.uuid == source and one.to]
    try:
        for count in range(len(mine), 0, -1) if len(mine) <= _MOST_SETS_OF else (len(mine),):
            for some in sorted(combinations(mine, count), key=lambda some: -_bytes(some)):
                found = board.place(some, (source,))
                if found:
                    return found
    except Exhausted:
        pass
    board, moves = Board(others, fixed, tenants, rules), []
    for one in sorted(mine, key=lambda one: -one.bytes):
        moves += board.place([one], (source,)) or []
    return moves


def making_room(
    gpus: Sequence[Gpu],
    fixed: Sequence[GpuShare],
    tenants: Sequence[Tenant],
    needs: Sequence[Need],
    fits: Fits,
    rules: Rules,
) -> list[Move] | None:
    """The moves after which a request fits, the fewest bytes first, then the fewest moves.

    needs: of the request's shares, to leave out what cannot help; `fits` decides. []: it fits
    already. None: no plan was found. Every plan of one or two moves is tried, and of more those
    that empty one GPU after another.
    """
    board = Board(gpus, fixed, tenants, rules)
    if fits(board.shares()):
        return []
    search = _Search(board, needs, fits)
    for way in (search.few, search.cleared):
        search.board = Board(gpus, fixed, tenants, rules)
        try:
            way()
        except Exhausted:
            pass
    return search.best


class _Search:
    """best: the best plan so far. cost: its bytes and moves."""

    def __init__(self, board: Board, needs: Sequence[Need], fits: Fits) -> None:
        self.board, self._needs, self._fits = board, list(dict.fromkeys(needs)), fits
        self._whole = len([need for need in needs if need.core_percent == 100])
        self.best: list[Move] | None = None
        self._cost: tuple[int, int] | None = None

    def few(self) -> None:
        """Try all plans of one and two moves. Raises Exhausted."""
        order = sorted(self.board.tenants, key=lambda one: one.bytes)
        for one in order:
            if not self._is_cheaper(one.bytes, 1):
                return
            home = self.board.at[one.id]
            for uuid in one.to:
                if self.board.can_go(one, uuid):
                    first = self.board.go(one, uuid)
                    self._offer([first])
                    self._second(first, order)
                    self.board.go(one, home)

    def _second(self, first: Move, order: Sequence[Tenant]) -> None:
        for two in order:
            if not self._is_cheaper(first.bytes + two.bytes, 2):
                return
            home = self.board.at[two.id]
            if two.id == first.id or not self._helps(home, two):
                continue
            for uuid in two.to:
                if self.board.can_go(two, uuid):
                    self._offer([first, self.board.go(two, uuid)])
                    self.board.go(two, home)

    def cleared(self) -> None:
        """Try to clear room on one GPU after another. Raises Exhausted."""
        self._clear([], ())

    def _clear(self, before: list[Move], closed: tuple[str, ...]) -> None:
        if len(closed) > max(1, self._whole):
            return
        for uuid in [uuid for uuid in self.board.core if uuid not in closed]:
            for need in self._needs:
                moves = self._off(uuid, need, (*closed, uuid), before)
                if not moves:
                    continue
                self._offer([*before, *moves])
                if len(self._needs) > 1 or self._whole > 1:
                    self._clear([*before, *moves], (*closed, uuid))
                by_id = {one.id: one for one in self.board.tenants}
                for move in reversed(moves):
                    self.board.go(by_id[move.id], move.source)

    def _off(
        self, uuid: str, need: Need, closed: Collection[str], before: Sequence[Move]
    ) -> list[Move] | None:
        """Move the cheapest set of tenants off a GPU that leaves room for `need`."""
        been = [move.id for move in before]
        there = [one for one in self.board.tenants if self.board.at[one.id] == uuid and one.to]
        for some in _sets([one for one in there if one.id not in been]):
            self.board.count_step()
            if not self._is_cheaper(_bytes(before) + _bytes(some), len(before) + len(some)):
                return None
            if self._has_room(uuid, need, some):
                moves = self.board.place(some, closed)
                if moves:
                    return moves
        return None

    def _helps(self, uuid: str, leaving: Tenant) -> bool:
        return any(self._has_room(uuid, need, (leaving,)) for need in self._needs)

    def _has_room(self, uuid: str, need: Need, without: Collection[Tenant] = ()) -> bool:
        core = self.board.core.get(uuid, -1) + sum([o.share.core_percent for o in without])
        memory = self.board.memory.get(uuid, -1) + sum([o.share.memory_bytes for o in without])
        return core >= need.core_percent and memory >= need.memory_bytes

    def _offer(self, moves: list[Move]) -> None:
        if not self._is_cheaper(_bytes(moves), len(moves)):
            return
        core = self.board.core
        if len([1 for left in core.values() if left == 100]) < self._whole:
            return
        if all(any(self._has_room(uuid, need) for uuid in core) for need in self._needs) and (
            self._fits(self.board.shares())
        ):
            self.best, self._cost = list(moves), (_bytes(moves), len(moves))

    def _is_cheaper(self, bytes: int, count: int) -> bool:
        return self._cost is None or (bytes, count) < self._cost


def _sets(tenants: Sequence[Tenant]) -> Iterator[tuple[Tenant, ...]]:
    """Sets of tenants, those that hold least first."""
    order = sorted(tenants, key=lambda one: (one.bytes, one.share.memory_bytes))
    if len(order) <= _MOST_SETS_OF:
        found = [some for count in range(1, len(order) + 1) for some in combinations(order, count)]
    else:
        found = [some for count in (1, 2) for some in combinations(order, count)]
        found += [tuple(order[:count]) for count in range(3, len(order) + 1)]
    return iter(sorted(found, key=lambda some: (_bytes(some), len(some))))


def _bytes(some: Collection[Tenant] | Collection[Move]) -> int:
    return sum([one.bytes for one in some])
