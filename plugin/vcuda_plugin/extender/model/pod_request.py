"""A pod's GPU request, read from the pod object of the API server. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from vcuda_oci.ledger.decision import Amounts
from vcuda_oci.model import mps, names, policies
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.request import Part
from vcuda_oci.system.settings_file import BINPACK, SPREAD, Config

from ...kube import pod_amounts, pod_terms
from . import annotations as known
from .tenancy import NO_TENANCY, Tenancy, tenancy_of

TOPOLOGY = "topology"
# When a container runs. APP: together with all others. SIDECAR: from its place among the init
# containers on. INIT: it ends before the next container starts.
APP, SIDECAR, INIT = "app", "sidecar", "init"
_MOST_CONTAINERS = 100


@dataclass(frozen=True)
class ContainerAsk:
    """One container's request.

    index: its place among the pod's containers; -1: an init container. parts: each goes to a
    different GPU.
    """

    name: str
    index: int
    stage: str
    parts: tuple[Part, ...]


class Wanted(NamedTuple):
    """Which GPUs may be used; empty: any. models: parts of names, written as by `model_word`."""

    uuids: frozenset[str] = frozenset()
    not_uuids: frozenset[str] = frozenset()
    models: tuple[str, ...] = ()
    not_models: tuple[str, ...] = ()

    def allows(self, uuid: str, model: str) -> bool:
        return (
            (not self.uuids or uuid in self.uuids)
            and uuid not in self.not_uuids
            and self.allows_model(model)
        )

    def allows_model(self, model: str) -> bool:
        word = "nvidia-" + model_word(model)  # HAMi's model names have this prefix
        return (not self.models or any(part in word for part in self.models)) and not any(
            part in word for part in self.not_models
        )


ANY = Wanted()


@dataclass(frozen=True)
class PodAsk:
    """A pod's request.

    containers: those that request a GPU, in the order in which they start.
    gpu_order, node_order: "binpack", "spread" or "topology"; "": the order from the settings.
    words: checked settings of the policy. isolation: one of policies.ISOLATIONS. namespace, uid: of
    the pod; not part of the comparison, so that equal requests of different pods are equal.
    """

    containers: tuple[ContainerAsk, ...]
    wanted: Wanted = ANY
    gpu_order: str = ""
    node_order: str = ""
    words: tuple[tuple[str, str], ...] = field(default=(), compare=False)
    namespace: str = field(default="", compare=False)
    uid: str = field(default="", compare=False)
    tenancy: Tenancy = NO_TENANCY
    isolation: str = policies.AUTO

    @property
    def core(self) -> int:
        """Compute of all containers that run at the same time, in percent of one GPU."""
        running = [each for each in self.containers if each.stage != INIT]
        return sum(part.core for each in running or self.containers for part in each.parts)

    @property
    def most_core(self) -> int:
        """The most compute held at one time, init containers included, in percent of one GPU."""
        most, beside = 0, 0
        for each in self.containers:
            if each.stage == INIT:
                most = max(most, beside + sum(part.core for part in each.parts))
            elif each.stage == SIDECAR:
                beside += sum(part.core for part in each.parts)
        running = [each for each in self.containers if each.stage != INIT]
        return max(most, sum(part.core for each in running for part in each.parts))

    @property
    def single(self) -> Part | None:
        """The only part of the request: a share of one GPU, or whole GPUs.

        None: the request has more parts, its neighbours are restricted, or it needs an instance.
        """
        if len(self.containers) != 1 or len(self.containers[0].parts) != 1:
            return None
        if self.tenancy != NO_TENANCY or self.isolation == policies.MIG:
            return None
        part = self.containers[0].parts[0]
        mixed = part.core > 100 and part.core % 100
        return None if mixed or part.memory_percent is not None else part


def ask_of(pod: Mapping[str, Any], settings: Config) -> PodAsk | None:
    """Read a pod's request; None: it requests no GPU. Raises VcudaError: an invalid request."""
    spec = mapping(pod.get("spec"))
    inits, apps = _list(spec.get("initContainers")), _list(spec.get("containers"))
    metadata = mapping(pod.get("metadata"))
    namespace, uid = str(metadata.get("namespace", "")), str(metadata.get("uid", ""))
    where = f"pod {namespace}/{metadata.get('name', '')}"
    containers, elastic = [], False
    staged = [(c, -1, SIDECAR if c.get("restartPolicy") == "Always" else INIT) for c in inits]
    staged += [(c, index, APP) for index, c in enumerate(apps)]
    for container, index, stage in staged:
        name = str(container.get("name", ""))
        asked = pod_amounts.asked(container)
        amounts = _amounts(asked, settings, f"{where}, container {name}")
        if amounts:
            elastic = elastic or amounts.any_core
            containers.append(ContainerAsk(name, index, stage, amounts.parts))
    if not containers:
        return None
    if len(containers) > _MOST_CONTAINERS:
        raise VcudaError(f"{len(containers)} containers ask for GPUs", where, "use several pods")
    written = mapping(metadata.get("annotations")).items()
    annotations = {key: value for key, value in written if isinstance(value, str)}
    words = pod_terms.words_of(annotations)
    if elastic:  # a part that reserves no compute
        words.setdefault("policy", policies.ELASTIC)
    isolation = _isolation(containers, words, settings, where)
    gpu_order, node_order = _orders(annotations, where)
    return PodAsk(
        tuple(containers),
        _wanted(annotations),
        gpu_order,
        node_order,
        tuple(sorted(words.items())),
        namespace,
        uid,
        tenancy_of(annotations, namespace, isolation == policies.MPS),
        isolation,
    )


def _isolation(
    containers: Sequence[ContainerAsk], words: Mapping[str, str], settings: Config, where: str
) -> str:
    """One of policies.ISOLATIONS. Raises VcudaError: invalid terms, or what MPS or a GPU instance
    cannot give."""
    isolation = settings.isolation
    for each in containers:
        for part in each.parts:
            terms = policies.parse(words, part.core, where)
            isolation = terms.isolation or isolation
            if isolation == policies.MPS:
                mps.check(terms, each.parts, where)
            if isolation == policies.MIG and (len(each.parts) != 1 or part.core > 100):
                what = "isolation mig: a container has one GPU instance; it asks for more"
                raise VcudaError(what, where, "ask for at most core 100")
    return isolation


def model_word(model: str) -> str:
    """Normalise a model name: drivers write "NVIDIA H100", labels "NVIDIA-H100"."""
    return model.lower().replace(" ", "-")


def _amounts(asked: dict[str, Any], settings: Config, where: str) -> Amounts | None:
    """Read one container's amounts; None: it requests no GPU."""
    core = pod_amounts.number(asked, settings.core_resource, where)
    blocks = pod_amounts.number(asked, settings.memory_resource, where)
    of_gpus = pod_amounts.of_gpus(asked, settings.gpu_resource, where)
    if core and of_gpus:
        raise VcudaError("whole GPUs and shares of GPUs at once", where, "ask for one kind")
    if not core and blocks:
        what = f"{settings.memory_resource} without {settings.core_resource}"
        raise VcudaError(what, where, "say how much compute")
    if (core or 0) > 100 * pod_amounts.MOST_GPUS:
        raise VcudaError(f"more than {pod_amounts.MOST_GPUS} GPUs", where, "ask for fewer")
    memory = (blocks or 0) * names.MEMORY_UNIT_BYTES
    if memory > pod_amounts.MOST_MIB * pod_amounts.MIB:
        raise VcudaError("more memory than any GPU has", where, "ask for less")
    return Amounts((Part(core, memory or None),)) if core else of_gpus


def _orders(annotations: Mapping[str, str], where: str) -> tuple[str, str]:
    own = annotations.get(known.PLACEMENT, "")
    if own not in ("", BINPACK, SPREAD, TOPOLOGY):
        what = f"placement '{own[:40]}' is not offered"
        raise VcudaError(what, where, "use binpack, spread or topology")
    hamis = {BINPACK: BINPACK, SPREAD: SPREAD, "topology-aware": TOPOLOGY}
    return (
        own or hamis.get(annotations.get(known.HAMI_GPU_ORDER, ""), ""),
        own or hamis.get(annotations.get(known.HAMI_NODE_ORDER, ""), ""),
    )


def _wanted(annotations: Mapping[str, str]) -> Wanted:
    def listed(keys: tuple[str, ...]) -> list[str]:
        parts = ",".join(annotations.get(key, "") for key in keys).split(",")
        return [part.strip() for part in parts if part.strip()]

    return Wanted(
        frozenset(listed(known.USE_UUID)),
        frozenset(listed(known.NOT_UUID)),
        tuple(map(model_word, listed(known.USE_MODEL))),
        tuple(map(model_word, listed(known.NOT_MODEL))),
    )


def mapping(value: Any) -> dict[str, Any]:
    """Return a part of an object of the API; {} where it has another type."""
    return value if isinstance(value, dict) else {}


def _list(value: Any) -> list[dict[str, Any]]:
    return [each for each in value if isinstance(each, dict)] if isinstance(value, list) else []
