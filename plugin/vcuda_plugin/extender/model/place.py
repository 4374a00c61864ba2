"""Place a whole pod on one node: each container by the node's own `placement.choose`."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Chosen, Refused, choose
from vcuda_oci.placement.rules import Rules

from .pod_request import INIT, SIDECAR, ContainerAsk, PodAsk

Between = Callable[[Sequence[Gpu]], Sequence[Sequence[int]] | None]


@dataclass(frozen=True)
class Placed:
    """A pod's placement on one node.

    containers: the shares of each container, by its name. holds: for each GPU one share with the
    most that the pod holds of it at one time; of GPUs in MIG mode one for each instance. kept: the
    part of the profiles, counted from the largest, that have as many places as without the pod's
    instances.
    """

    containers: dict[str, list[GpuShare]] = field(default_factory=dict)
    holds: list[GpuShare] = field(default_factory=list)
    kept: float = 1.0


def place(
    gpus: Sequence[Gpu],
    taken: Sequence[GpuShare],
    ask: PodAsk,
    rules: Rules,
    between: Between = lambda gpus: None,
) -> Placed | Refused:
    """Place each container of the pod, or return why one does not fit.

    gpus: those that the pod may use. taken: shares of other pods. between: returns the distances of
    GPUs, or None where they are not known.

    The largest container is placed first, so that small ones take no GPU that it needs whole. An
    init container runs before the others: it reuses their GPUs where it can, and counts only where
    it needs more than they do.
    """
    if ask.gpu_order:
        rules = rules.replaced(placement=ask.gpu_order)

    def on(some: Sequence[Gpu], beside: Sequence[GpuShare], each: ContainerAsk) -> Chosen | Refused:
        return choose(some, beside, Request(each.parts), rules, between(some))

    found: dict[str, list[GpuShare]] = {}
    lasting = [each for each in ask.containers if each.stage != INIT]
    for each in sorted(lasting, key=lambda each: -sum(part.core for part in each.parts)):
        beside = [*taken, *(share for shares in found.values() for share in shares)]
        answer = on(gpus, beside, each)
        if isinstance(answer, Refused):
            return answer
        found[each.name] = answer.shares
    own = {share.uuid for shares in found.values() for share in shares}
    for number, each in enumerate(ask.containers):
        if each.stage == INIT:
            beside = [*taken, *_sidecars_before(ask, number, found)]
            mine = [gpu for gpu in gpus if gpu.uuid in own]
            answer = on(mine, beside, each) if mine else Refused("")
            if isinstance(answer, Refused):
                answer = on(gpus, beside, each)
            if isinstance(answer, Refused):
                return answer
            found[each.name] = answer.shares
    ordered = {each.name: found[each.name] for each in ask.containers}
    return Placed(ordered, holds(ask, ordered))


def holds(ask: PodAsk, containers: Mapping[str, list[GpuShare]]) -> list[GpuShare]:
    """Return the most that the pod holds of each GPU at one time."""
    times = [[share for c in ask.containers if c.stage != INIT for share in containers[c.name]]]
    for number, each in enumerate(ask.containers):
        if each.stage == INIT:
            times.append(containers[each.name] + _sidecars_before(ask, number, containers))
    most: dict[str, tuple[int, int]] = {}
    for shares in times:
        for uuid, (core, memory) in _sums(shares).items():
            known_core, known_memory = most.get(uuid, (0, 0))
            most[uuid] = max(core, known_core), max(memory, known_memory)
    return [GpuShare(uuid, memory, core) for uuid, (core, memory) in most.items()]


def decided(
    ask: PodAsk, decision: Decision, gpus: Mapping[str, Gpu]
) -> dict[str, list[GpuShare]] | None:
    """Return the shares of each container by the pod's decision; None: it does not match the
    request.

    gpus: by UUID and by index. A decision only names the GPUs. The amounts come from the request,
    because any client that may write the pod may have written the decision.
    """
    found = {}
    for each in ask.containers:
        sizes = [(core, part) for part in each.parts for core in part.sizes]
        shares = decision.containers.get(each.name, [])
        if [share.core_percent for share in shares] != [core for core, _ in sizes]:
            return None
        if len({share.uuid for share in shares}) != len(shares):
            return None
        found[each.name] = [
            GpuShare(gpu.uuid, part.memory_of(core, gpu.memory_bytes), core)
            for share, (core, part) in zip(shares, sizes)
            if (gpu := gpus.get(share.uuid))
        ]
    return found


def _sidecars_before(
    ask: PodAsk, number: int, containers: Mapping[str, list[GpuShare]]
) -> list[GpuShare]:
    before = [each for each in ask.containers[:number] if each.stage == SIDECAR]
    return [share for each in before for share in containers[each.name]]


def _sums(shares: Sequence[GpuShare]) -> dict[str, tuple[int, int]]:
    sums: dict[str, tuple[int, int]] = {}
    for share in shares:
        core, memory = sums.get(share.uuid, (0, 0))
        sums[share.uuid] = core + share.core_percent, memory + share.memory_bytes
    return sums
