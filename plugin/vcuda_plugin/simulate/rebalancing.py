"""What `vcuda rebalance` would win: room for a pod that fits no node, by moves on one of them.

The node's own planner decides. A move is taken to copy all memory of a share; in a cluster pods
cannot be moved yet.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from typing import NamedTuple

from vcuda_oci.model.allocation import GpuShare, moved
from vcuda_oci.placement.choose import Refused
from vcuda_oci.placement.moves import Move, Tenant
from vcuda_oci.placement.rearrange import making_room, needs

from ..extender.cluster.cluster import Cluster
from ..extender.cluster.node_entry import Entry
from ..extender.model.place import place
from ..extender.model.pod_request import PodAsk

# Of the nodes with enough left in all, those with the most are searched.
_MOST_NODES = 8


class Made(NamedTuple):
    """node: where the pod fits now."""

    node: str
    moves: list[Move]


def make_room(cluster: Cluster, ask: PodAsk, names: Collection[str]) -> Made | None:
    """Move pods on the node where that copies the fewest bytes; None: no node can make room."""
    found: list[Made] = []
    for entry in _candidates(cluster, ask, names):
        moves = _moves(cluster, entry, ask)
        if moves:
            found.append(Made(entry.facts.name, moves))
    if not found:
        return None
    best = min(found, key=lambda made: (sum(move.bytes for move in made.moves), len(made.moves)))
    entry = cluster.nodes[best.node]
    for move in best.moves:
        cluster.hold(move.id, moved(entry.holds[move.id], {move.source: move.target}))
    return best


def _candidates(cluster: Cluster, ask: PodAsk, names: Collection[str]) -> list[Entry]:
    entries = [cluster.nodes[name] for name in names]
    left = {
        id(entry): 100 * len(entry.facts.usable) - sum(share.core_percent for share in entry.taken)
        for entry in entries
    }
    enough = [entry for entry in entries if left[id(entry)] >= ask.core]
    return sorted(enough, key=lambda entry: -left[id(entry)])[:_MOST_NODES]


def _moves(cluster: Cluster, entry: Entry, ask: PodAsk) -> list[Move] | None:
    gpus = [gpu for gpu in entry.facts.usable if ask.wanted.allows(gpu.uuid, gpu.model)]
    reported = entry.facts.reported
    rules = reported.rules(cluster.rules)
    tenants, fixed = [], []
    for uid, shares in entry.holds.items():
        to = _targets(cluster, entry, uid, shares)
        if to:
            tenants.append(Tenant(uid, shares[0], to, shares[0].memory_bytes))
        else:
            fixed += shares

    def fits(taken: Sequence[GpuShare]) -> bool:
        found = place(gpus, taken, ask, rules, reported.between)
        return not isinstance(found, Refused)

    parts = [part for each in ask.containers for part in each.parts]
    wanted = needs(parts, [gpu.memory_bytes for gpu in entry.facts.usable])
    return making_room(entry.facts.usable, fixed, tenants, wanted, fits, rules)


def _targets(cluster: Cluster, entry: Entry, uid: str, shares: Sequence[GpuShare]) -> list[str]:
    """The GPUs that a pod may move to: as `vcuda move`, only with one share."""
    mine = cluster.pods[uid].ask
    if len(shares) != 1 or mine is None or any(mine.tenancy):
        return []
    usable = entry.facts.usable
    model = next((gpu.model for gpu in usable if gpu.uuid == shares[0].uuid), "")
    return [
        gpu.uuid
        for gpu in usable
        if gpu.model == model
        and gpu.uuid != shares[0].uuid
        and mine.wanted.allows(gpu.uuid, gpu.model)
    ]
