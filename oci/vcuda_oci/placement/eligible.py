"""Which GPUs a request may use, before any amount is counted: pure."""

from __future__ import annotations

from ..model.gpu import Gpu
from ..model.request import ALL_GPUS

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

# The reason of a GPU that `vcuda drain` has closed.
DRAINED = "drained"
# Why a GPU that is not unhealthy has no room: its containers share it in another way.
TURNS_THERE, MPS_THERE = "its containers take turns", "its containers are under MPS"
NO_PARTITION = "has no free static partition that is wide enough"
IS_PART = "is a MIG device, where MPS is not offered"
_KINDS_OF_UUID = ("GPU-", "MIG-")
_HINTS = {
    "is drained": "name another GPU, ask for less, or run 'vcuda undrain'",
    "is unhealthy": "reset the GPU, or ask for less or another",
    IS_PART: "use isolation mig or turns, or another GPU",
    NO_PARTITION: "ask for less core, or end a container under MPS there",
    "its containers": "use the isolation that they have, or another GPU",
    "is in MIG mode": "name MIG devices of it, or ask for less or another",
}


class Refused:
    """A reason and a hint; the extender, the plugin and the commands all show the same ones."""

    def __init__(self, reason: str, hint: str = "ask for less, or free a share") -> None:
        self.reason, self.hint = reason, hint


def named(gpus: Sequence[Gpu], names: Sequence[str]) -> list[int] | Refused:
    """Positions of the GPUs that the request may use, in the order of `names`; or a refusal of the
    first name that does not name one GPU. A GPU in MIG mode stands for its MIG devices, if it has
    any.
    """
    if not names or names == (ALL_GPUS,):
        return _usable(gpus, list(range(len(gpus))))
    allowed: list[int] = []
    for name in names:
        begun = begun_by(name, [uuid for gpu in gpus for uuid in (gpu.uuid, gpu.parent)])
        if len(begun) > 1:
            listed = _listed([gpu for gpu in gpus if gpu.uuid.startswith(name)])
            what = f"'{name}' begins the UUIDs of {len(begun)} GPUs: {listed}"
            return Refused(what, "name one by index, or by more of its UUID")
        whole = begun[0] if begun else name
        found = _usable(gpus, [at for at, gpu in enumerate(gpus) if whole in _names(gpu)])
        if not found:
            what = f"no GPU '{name}' here; there is {_listed(gpus)}"
            return Refused(what, "name one by index or UUID")
        allowed += [at for at in found if at not in allowed]
    return allowed


def begun_by(name: str, uuids: Iterable[str]) -> list[str]:
    """The UUID equal to `name`, else those that begin with it, each once; none for an index.

    CUDA_VISIBLE_DEVICES takes such prefixes too.
    """
    if not name.startswith(_KINDS_OF_UUID) or name in _KINDS_OF_UUID:
        return []
    begun = [uuid for uuid in dict.fromkeys(uuids) if uuid.startswith(name)]
    return [name] if name in begun else begun


def _listed(gpus: Sequence[Gpu]) -> str:
    return ", ".join(f"{gpu.name} ({gpu.uuid})" for gpu in gpus) or "none"


def _names(gpu: Gpu) -> tuple[str, ...]:
    return (gpu.uuid, gpu.name, *((gpu.parent, str(gpu.index)) if gpu.mig else ()))


def _usable(gpus: Sequence[Gpu], positions: list[int]) -> list[int]:
    return [at for at in positions if not gpus[at].divided] or positions


def barred(
    gpus: Sequence[Gpu], core: int, names: Sequence[str], unhealthy: Mapping[str, str]
) -> dict[str, str]:
    """Reasons why some of the GPUs cannot serve this request, by UUID."""
    found = {}
    for gpu in gpus:
        sick = next((uuid for uuid in (gpu.uuid, gpu.parent) if uuid in unhealthy), "")
        if sick:
            found[gpu.uuid] = closed(sick, unhealthy[sick])
        elif gpu.divided:
            found[gpu.uuid] = f"{gpu.uuid} is in MIG mode and has no MIG devices"
        # CUDA uses one MIG device, and no GPU beside it.
        elif gpu.mig is not None and core > 100 and not names:
            found[gpu.uuid] = f"{gpu.parent} is in MIG mode"
    return found


def closed(uuid: str, reason: str) -> str:
    """Why a GPU gets no new containers. reason: as ledger.unhealthy has it, or from above."""
    if reason == DRAINED:
        return f"{uuid} is {DRAINED}"
    is_well = reason in (TURNS_THERE, MPS_THERE, NO_PARTITION, IS_PART)
    return f"{uuid}: {reason}" if is_well else f"{uuid} is unhealthy: {reason}"


def refusal(barred: Mapping[str, str]) -> tuple[str, str]:
    """Why these GPUs cannot serve the request, and a hint."""
    why = ", ".join(dict.fromkeys(barred.values()))
    return why, next(hint for word, hint in _HINTS.items() if word in why)
