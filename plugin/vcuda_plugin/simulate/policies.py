"""Policies by which a simulation chooses a pod's node: the extender's scores, and other policies to
compare them with.

The extender always decides which nodes fit. The other policies choose the node; FGD chooses the GPU
too.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np

from vcuda_oci.model.request import Part
from vcuda_oci.system.settings_file import BINPACK, SPREAD

from ..extender.cluster.cluster import Cluster
from ..extender.filter.score import free_of, rest_of, scores
from ..extender.model.pod_request import TOPOLOGY, PodAsk, Wanted
from .fragmentation import Mix

Pick = Callable[[Cluster, PodAsk, Sequence[str]], tuple[str, PodAsk]]

NO_RESERVE, FIRST_FIT, BEST_FIT, FGD = "no-reserve", "first-fit", "best-fit", "fgd"
# Digits to round to: smaller differences of sums come from floating point.
_DIGITS = 9


class Policy(NamedTuple):
    """order: of the cluster's GPUs, used where `pick` names no GPU."""

    order: str
    pick: Pick


def policies(mix: Mix, seed: int) -> dict[str, Policy]:
    """Return the policies by name.

    mix: of the whole trace, which FGD knows beforehand. seed: for the choice among equal scores.
    """
    found = {order: Policy(order, ours(seed)) for order in (BINPACK, SPREAD, TOPOLOGY)}
    found[NO_RESERVE] = Policy(BINPACK, ours(seed, reserve=False))
    found[FIRST_FIT] = Policy(BINPACK, first_fit)
    found[BEST_FIT] = Policy(BINPACK, best_fit)
    found[FGD] = Policy(BINPACK, steepest(mix))
    return found


def ours(seed: int, *, reserve: bool = True) -> Pick:
    """Pick a random node among those with the highest score, as kube-scheduler does.

    reserve: passed to `scores`.
    """
    dice = random.Random(seed)  # noqa: S311 - not used for secrets

    def pick(cluster: Cluster, ask: PodAsk, fitting: Sequence[str]) -> tuple[str, PodAsk]:
        found = scores(cluster, ask, fitting, reserve=reserve)
        most = max(found)
        return dice.choice([name for name, score in zip(fitting, found) if score == most]), ask

    return pick


def first_fit(cluster: Cluster, ask: PodAsk, fitting: Sequence[str]) -> tuple[str, PodAsk]:
    return fitting[0], ask


def best_fit(cluster: Cluster, ask: PodAsk, fitting: Sequence[str]) -> tuple[str, PodAsk]:
    """Pick the node with the least free capacity."""
    free = free_of(cluster, cluster.rows(fitting)).sum(axis=1).round(_DIGITS)
    return fitting[int(free.argmin())], ask


def steepest(mix: Mix) -> Pick:
    """Pick the GPU where fragmentation grows least. Source: as in fragmentation.py, section 4."""

    def pick(cluster: Cluster, ask: PodAsk, fitting: Sequence[str]) -> tuple[str, PodAsk]:
        part = ask.single
        if part is None:
            # The paper has no rule for pods in several parts.
            return best_fit(cluster, ask, fitting)
        if part.core >= 100:
            return _whole(cluster, ask, part, fitting)
        return _share(cluster, ask, part, fitting)

    def _whole(
        cluster: Cluster, ask: PodAsk, part: Part, fitting: Sequence[str]
    ) -> tuple[str, PodAsk]:
        rows = cluster.rows(fitting)
        free = free_of(cluster, rows)
        usable = cluster.arrays.allowed(rows, ask.wanted) & (free >= 1)
        after = np.where(usable & (usable.cumsum(axis=1) <= part.core // 100), 0, free)
        grown = mix.lost(cluster, rows, after) - mix.lost(cluster, rows, free)
        return fitting[int(grown.round(_DIGITS).argmin())], ask

    def _share(
        cluster: Cluster, ask: PodAsk, part: Part, fitting: Sequence[str]
    ) -> tuple[str, PodAsk]:
        rows, arrays = cluster.rows(fitting), cluster.arrays
        free, rest = free_of(cluster, rows), rest_of(cluster, rows, part)
        allowed = arrays.allowed(rows, ask.wanted)
        fits = arrays.fit_share(rows, allowed, part.core, part.memory_bytes)
        nodes, columns = np.nonzero(fits)
        after = free[nodes]
        after[np.arange(len(nodes)), columns] = rest[nodes, columns]
        grown = mix.lost(cluster, rows[nodes], after) - mix.lost(cluster, rows, free)[nodes]
        best = int(grown.round(_DIGITS).argmin())
        name = fitting[nodes[best]]
        gpu = cluster.nodes[name].facts.usable[columns[best]]
        return name, replace(ask, wanted=Wanted(frozenset((gpu.uuid,))))

    return pick
