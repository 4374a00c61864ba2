"""Plans of moves on small nodes, each compared with all plans of one and two moves."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence

from hypothesis import given, settings
from hypothesis import strategies as st

from support.ledger.samples import GIB, gpus
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Part, Request
from vcuda_oci.placement import free, rearrange
from vcuda_oci.placement.choose import Chosen, choose
from vcuda_oci.placement.moves import Move, Tenant
from vcuda_oci.placement.rearrange import Need
from vcuda_oci.placement.rules import Rules

Places = dict[str, str]
SIZES = st.tuples(st.sampled_from([10, 25, 40, 50, 60, 100]), st.integers(1, 8))


@st.composite
def nodes(draw: st.DrawFn) -> tuple[list[Gpu], list[Tenant]]:
    """Two to four GPUs of 8 GiB, and containers that fit there; some may not move."""
    found = gpus(*[8] * draw(st.integers(2, 4)))
    uuids = [gpu.uuid for gpu in found]
    tenants: list[Tenant] = []
    for number in range(draw(st.integers(1, 6))):
        core, memory = draw(SIZES)
        share = GpuShare(draw(st.sampled_from(uuids)), memory * GIB, core)
        if free.no_room([share], found, [one.share for one in tenants], Rules()):
            continue
        to = [uuid for uuid in uuids if uuid != share.uuid] if draw(st.integers(0, 4)) else []
        tenants.append(Tenant(f"c{number}", share, to, draw(st.integers(0, memory)) * GIB))
    return found, tenants


def shares(tenants: Sequence[Tenant], at: Places) -> list[GpuShare]:
    return [one.share.replaced(uuid=at[one.id]) for one in tenants]


def after(found: list[Gpu], tenants: Sequence[Tenant], moves: Sequence[Move]) -> Places:
    """Where the containers are after a plan, each move of which must be valid in its turn."""
    at = {one.id: one.share.uuid for one in tenants}
    by_id = {one.id: one for one in tenants}
    for move in moves:
        mine = by_id[move.id]
        assert (move.source, move.bytes) == (at[move.id], mine.bytes)
        assert move.target in mine.to and move.target != move.source
        beside = shares([one for one in tenants if one.id != move.id], at)
        wanted = [mine.share.replaced(uuid=move.target)]
        assert free.no_room(wanted, found, beside, Rules()) is None
        at[move.id] = move.target
    return at


def all_plans(found: list[Gpu], tenants: Sequence[Tenant], most: int) -> Iterator[list[Move]]:
    """All valid plans of at most so many moves."""
    single = [(one, uuid) for one in tenants for uuid in one.to]
    for count in range(most + 1):
        for some in itertools.product(single, repeat=count):
            at = {one.id: one.share.uuid for one in tenants}
            moves = []
            for one, uuid in some:
                beside = shares([other for other in tenants if other.id != one.id], at)
                moved = [one.share.replaced(uuid=uuid)]
                if at[one.id] == uuid or free.no_room(moved, found, beside, Rules()):
                    break
                moves.append(Move(one.id, at[one.id], uuid, one.bytes))
                at[one.id] = uuid
            else:
                yield moves


def cost(moves: Sequence[Move]) -> tuple[int, int]:
    return sum(move.bytes for move in moves), len(moves)


@settings(max_examples=150, deadline=None)
@given(nodes(), st.lists(SIZES, min_size=1, max_size=2))
def test_room_is_made_by_valid_moves_no_dearer_than_any_plan_of_two(
    node: tuple[list[Gpu], list[Tenant]], asked: list[tuple[int, int]]
) -> None:
    found, tenants = node
    request = Request([Part(core, memory * GIB) for core, memory in asked])
    needs = [Need(core, memory * GIB) for core, memory in asked]

    def fits(taken: Sequence[GpuShare]) -> bool:
        return isinstance(choose(found, taken, request, Rules()), Chosen)

    plan = rearrange.making_room(found, [], tenants, needs, fits, Rules())
    if plan is not None:
        assert fits(shares(tenants, after(found, tenants, plan)))
    known = [
        cost(moves)
        for moves in all_plans(found, tenants, 2)
        if fits(shares(tenants, after(found, tenants, moves)))
    ]
    assert not known or (plan is not None and cost(plan) <= min(known))


@settings(max_examples=150, deadline=None)
@given(nodes())
def test_gpu_is_emptied_of_as_many_containers_as_find_room(
    node: tuple[list[Gpu], list[Tenant]],
) -> None:
    found, tenants = node
    source = found[0].uuid
    mine = [one for one in tenants if one.share.uuid == source]
    fixed = [one.share for one in tenants if one.share.uuid != source]
    plan = rearrange.emptying(found, fixed, mine, source, Rules())
    at = after(found, tenants, plan)
    left = [one for one in mine if at[one.id] == source]
    assert len(plan) == len(mine) - len(left)

    movable = [one for one in mine if one.to]
    counts = []
    for targets in itertools.product(*[(source, *one.to) for one in movable]):
        taken = list(fixed)
        for one, to in zip(movable, targets):
            share = one.share.replaced(uuid=to)
            if to != source and free.no_room([share], found, taken, Rules()):
                break
            taken.append(share)
        else:
            counts.append(len([to for to in targets if to != source]))
    assert len(plan) == max(counts)


def test_whole_gpu_is_cleared_of_many_containers() -> None:
    """More than two moves."""
    found = gpus(8, 8, 8)
    uuids = [gpu.uuid for gpu in found]
    tenants = [
        Tenant(f"c{at}", GpuShare(uuids[at % 3], GIB, 10), [u for u in uuids if u != uuids[at % 3]])
        for at in range(12)
    ]
    whole = Request([Part(100)])

    def fits(taken: Sequence[GpuShare]) -> bool:
        return isinstance(choose(found, taken, whole, Rules()), Chosen)

    plan = rearrange.making_room(found, [], tenants, [Need(100)], fits, Rules())
    assert plan and len(plan) == 4
    assert fits(shares(tenants, after(found, tenants, plan)))


def test_search_on_a_large_node_ends_without_a_plan() -> None:
    """64 containers on eight GPUs with room to move; nothing would ever fit."""
    found = gpus(*[80] * 8)
    uuids = [gpu.uuid for gpu in found]
    tenants = [
        Tenant(f"c{at}", GpuShare(uuids[at % 8], 4 * GIB, 5), uuids, at * GIB) for at in range(64)
    ]
    needs = [Need(100), Need(30, 9 * GIB)]
    assert rearrange.making_room(found, [], tenants, needs, lambda taken: False, Rules()) is None
