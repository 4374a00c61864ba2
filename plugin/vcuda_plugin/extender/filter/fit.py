"""Find the nodes that have room for a pod, and why the others have none. Reads only."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field
from itertools import compress

import numpy as np

from vcuda_oci.model import policies
from vcuda_oci.model.request import Part
from vcuda_oci.model.sizes import gib
from vcuda_oci.placement.choose import Refused

from ..cluster.cluster import Cluster
from ..model.gpu_arrays import Bools, Rows
from ..model.pod_request import PodAsk
from ..model.tenancy import NO_TENANCY

# How many nodes get a reason of their own, which names GPUs: the scheduler writes every distinct
# reason into the pod's status.
MOST_OWN_REASONS = 20
_MOST_CHARACTERS = 200
NOT_KNOWN = "not known to the scheduler extender yet"
OTHER_GPU = "no GPU here that the pod may use"


@dataclass
class Verdict:
    """The result for each node.

    fitting: in the order of the call. refused: the reason by node. never: the reason by node, where
    the pod does not fit even once other pods have ended.
    """

    fitting: list[str] = field(default_factory=list)
    refused: dict[str, str] = field(default_factory=dict)
    never: dict[str, str] = field(default_factory=dict)


def fit(cluster: Cluster, ask: PodAsk, names: Sequence[str]) -> Verdict:
    with cluster.lock:
        part, rows = ask.single, cluster.rows(names)
        if part is None:
            fits, never = _surely(cluster, ask, rows), np.zeros(len(names), np.bool_)
            _one_by_one(cluster, ask, names, np.flatnonzero(~fits).tolist(), fits, never)
        else:
            fits, never = _at_once(cluster, ask, part, names, rows)
        never &= ~fits
        verdict = Verdict()
        for name in compress(names, never.tolist()):
            verdict.never[name] = _why_never(cluster, ask, name)
        left = ~never & ~_over_quota(cluster, ask, names, rows, ~never, verdict)
        verdict.fitting = list(compress(names, (fits & left).tolist()))
        refused = list(compress(names, (~fits & left).tolist()))
        verdict.refused |= dict.fromkeys(refused, f"less is free than {described(ask)}")
        for name in refused[:MOST_OWN_REASONS]:
            verdict.refused[name] = _why(cluster, ask, name)
        return verdict


def described(ask: PodAsk) -> str:
    """Describe the request briefly, with the same words for every node."""
    memory = sum(part.memory_bytes or 0 for each in ask.containers for part in each.parts)
    return f"{ask.core} %" + (f" and {gib(memory)}" if memory else "")


def _over_quota(
    cluster: Cluster, ask: PodAsk, names: Sequence[str], rows: Rows, which: Bools, verdict: Verdict
) -> Bools:
    """Return those of `which` that the namespace's quota refuses; add the reasons to `verdict`."""
    groups, found = cluster.quota.over_groups(ask, rows)
    if not any(found):
        return np.zeros(len(rows), np.bool_)
    refuses = np.array([each is not None for each in found], np.bool_)
    over: Bools = refuses[groups] & (rows >= 0) & which
    for name, number in zip(compress(names, over.tolist()), groups[over].tolist()):
        if why := found[number]:
            (verdict.never if why.never else verdict.refused)[name] = why.reason
    return over


def _at_once(
    cluster: Cluster, ask: PodAsk, part: Part, names: Sequence[str], rows: Rows
) -> tuple[Bools, Bools]:
    arrays, known = cluster.arrays, rows >= 0
    allowed = arrays.allowed(rows, ask.wanted) & known[:, np.newaxis]
    whole, core = divmod(part.core, 100)
    if whole:
        fits = arrays.fit_whole(rows, allowed, whole, part.memory_bytes)
    else:
        fits = np.any(arrays.fit_share(rows, allowed, core, part.memory_bytes), axis=1)
    never = np.zeros(len(rows), np.bool_)
    others = np.flatnonzero(known & ~fits)
    if len(others):
        left = rows[others], allowed[others]
        if whole:
            could = arrays.could_fit_whole(*left, whole, part.memory_bytes)
        else:
            could = arrays.could_fit_share(*left, core, part.memory_bytes)
        never[others] = ~could
    if cluster.wide:
        numbers = [number for number, name in enumerate(names) if name in cluster.wide]
        _one_by_one(cluster, ask, names, numbers, fits, never)
    return fits, never


def _surely(cluster: Cluster, ask: PodAsk, rows: Rows) -> Bools:
    """(rows): the nodes that certainly have room for several parts, found without placing them."""
    if ask.tenancy != NO_TENANCY or ask.isolation == policies.MIG:
        return np.zeros(len(rows), np.bool_)
    parts = [part for each in ask.containers for part in each.parts]
    apart = any(len(each.parts) > 1 for each in ask.containers)
    allowed = cluster.arrays.allowed(rows, ask.wanted) & (rows >= 0)[:, np.newaxis]
    return cluster.arrays.surely_fit(rows, allowed, parts, apart)


def _one_by_one(
    cluster: Cluster,
    ask: PodAsk,
    names: Sequence[str],
    which: Iterable[int],
    fits: Bools,
    never: Bools,
) -> None:
    """Fill `fits` and `never` for the nodes that the arrays cannot answer for."""
    ask_number = cluster.number(ask)
    for number in which:
        entry = cluster.nodes.get(names[number])
        if entry:
            answer = cluster.answer(entry, ask, ask_number)
            fits[number], never[number] = answer is None, answer is not None and answer[1]


def _why(cluster: Cluster, ask: PodAsk, name: str) -> str:
    entry = cluster.nodes.get(name)
    answer = cluster.find(entry, ask) if entry else Refused(NOT_KNOWN)
    return answer.reason[:_MOST_CHARACTERS] if isinstance(answer, Refused) else ""


def _why_never(cluster: Cluster, ask: PodAsk, name: str) -> str:
    facts = cluster.nodes[name].facts
    if facts.why:
        return facts.why
    if not any(ask.wanted.allows(gpu.uuid, gpu.model) for gpu in facts.reported.gpus):
        return OTHER_GPU
    reason = f"its GPUs never have {described(ask)}"
    if ask.isolation == policies.MIG:
        return reason
    sizes = [gpu.memory_bytes for gpu in facts.usable if ask.wanted.allows(gpu.uuid, gpu.model)]
    return f"{reason}: the largest of {len(sizes)} has {gib(max(sizes))}" if sizes else reason
