"""What is free of the devices that claims can get, and why a claim that waits fits on no node.

By amounts alone, as kube-scheduler counts them: it also reads taints, selectors and counters. A
place for a GPU instance is one device of many that exclude each other; it is not judged.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import NamedTuple

from vcuda_oci.model import policies
from vcuda_oci.model.sizes import gib

from .dra_names import FENCED, SHARES, TYPE_GPU, TYPE_MIG, TYPE_MPS, WHOLE
from .objects import Asked, Claim, Device, Held, amounts

# The types of devices of each class. Source: packaging/chart/templates/deviceclass.yaml.
_KINDS = {
    SHARES: (TYPE_GPU, TYPE_MIG),
    WHOLE: (TYPE_GPU,),
    FENCED[policies.MPS]: (TYPE_MPS,),
}
NOT_JUDGED = "claims for GPU instances are not judged here"


class Free(NamedTuple):
    """What is left of a device."""

    device: Device
    core_percent: int
    memory_bytes: int


class Verdict(NamedTuple):
    """Where one claim fits. fitting: nodes with room. refused: the reason of each other node.
    never: refused nodes that would have too little even if nothing were held. exact: False: the
    claim also selects devices by CEL, which was not judged.
    """

    fitting: list[str]
    refused: dict[str, str]
    never: set[str]
    exact: bool


class Room:
    """The devices of the nodes, less what claims hold."""

    def __init__(self, devices: Iterable[Device], claims: Iterable[Claim]) -> None:
        self.nodes: dict[str, list[Free]] = {}
        held: dict[tuple[str, str], list[Held]] = {}
        for claim in claims:
            for each in claim.held or ():
                held.setdefault((each.node, each.device), []).append(each)
        for device in devices:
            left = _left(device, held.get((device.node, device.name), ()))
            self.nodes.setdefault(device.node, []).append(left)
        for node, found in self.nodes.items():
            self.nodes[node] = _without_twins(found)

    def judge(self, claim: Claim) -> Verdict | None:
        """None: no request of the claim can be judged."""
        if any(one.device_class not in _KINDS for each in claim.asked for one in each):
            return None
        exact = all(one.is_exact for each in claim.asked for one in each)
        verdict = Verdict([], {}, set(), exact)
        for node, free in sorted(self.nodes.items()):
            reason = _place(claim, free)
            if not reason:
                verdict.fitting.append(node)
                continue
            verdict.refused[node] = reason
            empty = [_left(each.device, ()) for each in free if not each.device.unusable]
            if empty and (never := _place(claim, empty)):
                verdict.refused[node] = never
                verdict.never.add(node)
        return verdict


def _left(device: Device, held: Sequence[Held]) -> Free:
    taken = [amounts(each, device) for each in held]
    core = device.core_percent - sum(core for core, _ in taken)
    memory = device.memory_bytes - sum(memory for _, memory in taken)
    return Free(device, max(0, core), max(0, memory))


def _without_twins(found: Sequence[Free]) -> list[Free]:
    """Take a device as full while its GPU is in use by its other device, in turns or under MPS."""
    used = {each.device.uuid: each.device.name for each in found if _is_used(each)}
    return [
        each._replace(core_percent=0, memory_bytes=0)
        if used.get(each.device.uuid, each.device.name) != each.device.name
        else each
        for each in found
    ]


def _is_used(free: Free) -> bool:
    whole = free.device.core_percent, free.device.memory_bytes
    return (free.core_percent, free.memory_bytes) != whole


def _place(claim: Claim, free: Sequence[Free]) -> str:
    """Place each request as kube-scheduler does, on the first device with room; return why one does
    not fit, or "".
    """
    left = {each.device.name: each for each in free}
    taken: set[str] = set()
    for alternatives in claim.asked:
        for one in alternatives:
            then = _take(one, left, taken if claim.distinct else set())
            if then is not None:
                left = {**left, **then}
                taken |= then.keys()
                break
        else:
            return _nothing_fits(alternatives[0], left, taken if claim.distinct else set())
    return ""


def _take(one: Asked, left: Mapping[str, Free], taken: set[str]) -> dict[str, Free] | None:
    """The devices that `one` would get, less what it takes; None: there are too few."""
    then: dict[str, Free] = {}
    for name, each in _of_class(one, left, taken):
        core, memory = amounts(one, each.device)
        if len(then) < one.times and each.core_percent >= core and each.memory_bytes >= memory:
            rest = each.core_percent - core, each.memory_bytes - memory
            then[name] = Free(each.device, *rest)
    return then if len(then) == one.times else None


def _of_class(one: Asked, left: Mapping[str, Free], taken: set[str]) -> list[tuple[str, Free]]:
    kinds = _KINDS[one.device_class]
    return [
        (name, each)
        for name, each in left.items()
        if each.device.kind in kinds and name not in taken and not each.device.unusable
    ]


def _nothing_fits(one: Asked, left: Mapping[str, Free], taken: set[str]) -> str:
    """The same words as for pods that ask by resources."""
    usable = [each for _, each in _of_class(one, left, taken)]
    if not usable:
        bad = sorted({f"{each.device.uuid} is {each.device.unusable}" for each in left.values()
                      if each.device.unusable})  # fmt: skip
        return ", ".join(bad) or "no device of this kind is left"

    def nearness(each: Free) -> tuple[int, int]:
        return min(each.core_percent, amounts(one, each.device)[0]), each.memory_bytes

    best = max(usable, key=nearness)
    core, memory = amounts(one, best.device)
    several = f" for each of {one.times}" if one.times > 1 else ""
    return (
        f"largest free share is {best.core_percent} % and {gib(best.memory_bytes)} on "
        f"{best.device.uuid}; {core} % and {gib(memory)} asked{several}"
    )
