"""Device IDs offered to the kubelet, and the answers to its Allocate calls. Pure: no I/O.

An ID is "<GPU UUID>.<number>", or only the UUID for a GPU that is not shared. IDs serve for
counting only: placement chooses a container's GPU when the container is created.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass

from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.request import Request
from vcuda_oci.placement.choose import Refused, choose
from vcuda_oci.placement.rules import Rules
from vcuda_oci.system.settings_file import SPREAD, Config

CORE, MEMORY, GPU = "vcuda-core", "vcuda-memory", "gpu"
# Kind of an Allocate answer where the pod's annotations give the GPU's amount: see `allocates_by`.
VIRTUAL = "vgpu"
# An ID with its health and NUMA node is 80 bytes at most, and the kubelet reads 4 MiB. Source:
# grpc-go, defaultClientMaxReceiveMessageSize.
MOST_IDS = 50_000
_ANNOTATIONS = {
    CORE: (names.ANNOTATION_CORE_UNITS, names.GPUMANAGER_CORE),
    MEMORY: (names.ANNOTATION_MEMORY_UNITS, names.GPUMANAGER_MEMORY),
    GPU: (names.ANNOTATION_GPU_UNITS,),
    VIRTUAL: (names.ANNOTATION_VIRTUAL_UNITS,),
}


@dataclass(frozen=True)
class Device:
    """One ID. numa: the GPU's NUMA node, or None if it is unknown or not for the kubelet."""

    id: str
    healthy: bool = True
    numa: int | None = None


@dataclass(frozen=True)
class Answer:
    """The answer to an Allocate. mount: (path on the host, path in the container)."""

    annotations: dict[str, str]
    mount: tuple[str, str]


def offered(settings: Config) -> dict[str, str]:
    """The resource name of each kind that is enabled. Raises VcudaError: two have the same name."""
    called = {
        CORE: settings.core_resource,
        MEMORY: settings.memory_resource,
        GPU: settings.gpu_resource,
    }
    found = {kind: name for kind, name in called.items() if name}
    if len(set(found.values())) < len(found):
        raise VcudaError("two resources have one name", settings.path, "name each differently")
    return found


def allocates_by(kind: str, split: int, followed: bool) -> str:
    """The kind of the Allocate answer: VIRTUAL if the pod gives the amount of GPU, else `kind`.

    followed: whether the agent watches the pods. With split > 1, one ID is never a whole GPU.
    """
    return VIRTUAL if kind == GPU and (followed or split > 1) else kind


def units(kind: str, gpu: Gpu, rules: Rules, split: int = 1) -> int:
    """How many IDs of this kind a GPU has: the most that placement may promise in total.

    split: how many containers may share a GPU of the kind GPU.
    """
    if kind == MEMORY:
        return rules.promised(gpu) // names.MEMORY_UNIT_BYTES
    return 100 if kind == CORE else split


def devices(
    kind: str,
    gpus: Sequence[Gpu],
    unhealthy: Collection[str],
    numa: dict[str, int],
    rules: Rules,
    split: int = 1,
) -> list[Device]:
    """All device IDs. unhealthy: UUIDs. numa: NUMA node by UUID, of GPUs that have one.

    Memory units carry no NUMA node: with thousands of them, the kubelet needs a tenth of a second
    for each container to compute its topology hints. Raises VcudaError: more IDs than MOST_IDS.
    """
    count = sum(units(kind, gpu, rules, split) for gpu in gpus)
    if count > MOST_IDS:
        what = f"{count} units, and the kubelet can take {MOST_IDS}"
        raise VcudaError(what, f"resource {kind}", "lower memory-overcommit, or switch it off")
    found = []
    for gpu in gpus:
        node = None if kind == MEMORY else numa.get(gpu.uuid)
        healthy = gpu.uuid not in unhealthy
        count, is_whole = units(kind, gpu, rules, split), kind == GPU and split == 1
        ids = [gpu.uuid] if is_whole else [f"{gpu.uuid}.{number}" for number in range(count)]
        found += [Device(id, healthy, node) for id in ids]
    return found


def answer(kind: str, ids: Sequence[str], known: Collection[str], state_dir: str) -> Answer:
    """Answer an Allocate. kind: as `allocates_by` has it.

    Raises VcudaError: no, unknown or repeated IDs.
    """
    strange = next((id for id in ids if id not in known), "")
    if strange or not ids or len(set(ids)) < len(ids):
        what = f"no device '{strange}' here" if strange else "not a set of devices"
        raise VcudaError(what, f"Allocate of {kind}", "restart the kubelet if it says so again")
    amount = str(len(ids))
    return Answer(
        dict.fromkeys(_ANNOTATIONS[kind], amount),
        (f"{state_dir}/{names.REQUESTS}/{kind}/{amount}", f"{names.GUEST_REQUESTS}/{kind}"),
    )


def preferred(
    kind: str,
    available: Iterable[str],
    must: Sequence[str],
    size: int,
    rules: Rules,
    gpus: Sequence[Gpu] = (),
    distances: Sequence[Sequence[int]] | None = None,
    split: int = 1,
) -> list[str]:
    """Choose `size` IDs, including `must`, from as few GPUs as possible; fewer if no more exist.

    Cores and whole GPUs come from the GPUs that placement would choose. Memory, and IDs added to
    `must`, come from the fullest GPU that has enough (binpack) or the emptiest (spread).
    gpus, distances: the node's, as placement takes them.
    """
    chosen = list(dict.fromkeys(must))
    free: dict[str, list[str]] = {}
    for id in sorted(set(available) - set(chosen), key=_rank):
        free.setdefault(_gpu_of(id), []).append(id)
    if (kind == CORE or (kind == GPU and split == 1)) and not chosen:
        for uuid, count in _as_placed(kind, free, size, rules, gpus, distances).items():
            chosen += free.pop(uuid)[:count]
    # Prefer more IDs of the GPUs chosen so far.
    for uuid in dict.fromkeys(map(_gpu_of, chosen)):
        chosen += free.pop(uuid, [])[: max(0, size - len(chosen))]
    while len(chosen) < size and free:
        left = size - len(chosen)
        uuid = _next_gpu(free, left, 100 if kind == CORE else 0, rules)
        chosen += free.pop(uuid)[:left]
    return chosen


def _as_placed(
    kind: str,
    free: dict[str, list[str]],
    size: int,
    rules: Rules,
    gpus: Sequence[Gpu],
    distances: Sequence[Sequence[int]] | None,
) -> dict[str, int]:
    """Number of IDs per GPU that placement would choose now; empty: it would refuse."""
    each = 100 if kind == CORE else 1
    held = {gpu.uuid: each - len(free.get(gpu.uuid, ())) for gpu in gpus}
    taken = [GpuShare(uuid, 0, 100 * count // each) for uuid, count in held.items() if count > 0]
    answer = choose(gpus, taken, Request.of(size * 100 // each), rules.once(), distances)
    if isinstance(answer, Refused) or not size:
        return {}
    return {share.uuid: share.core_percent * each // 100 for share in answer.shares}


def _next_gpu(free: dict[str, list[str]], left: int, whole: int, rules: Rules) -> str:
    untouched = [uuid for uuid, ids in free.items() if len(ids) == whole]
    if whole and left >= whole and untouched:
        return untouched[0]
    fitting = [uuid for uuid, ids in free.items() if len(ids) >= left]
    if not fitting:
        return max(free, key=lambda uuid: len(free[uuid]))
    sign = -1 if rules.placement == SPREAD else 1
    return min(fitting, key=lambda uuid: sign * len(free[uuid]))


def _gpu_of(id: str) -> str:
    return id.partition(".")[0]


def _rank(id: str) -> tuple[str, int, str]:
    uuid, _, number = id.partition(".")
    return uuid, int(number) if number.isdigit() else 0, id
