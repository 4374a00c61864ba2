"""ResourceClaimTemplates with names that say what they hold. Pure: no I/O.

An admission policy of the chart turns a container's resources, and the pod's annotations about the
compute policy, into the name of a template:

    vcuda.core-30.memory-20.policy-elastic

After the prefix, each part is a word of `words`, a dash and the value as the pod had it. So equal
requests of a namespace have one template, and creating it twice is safe. What the amounts mean is
decided as for the device plugin, by `pod_request`. Source: Kubernetes 1.36, resource.k8s.io/v1,
"DeviceRequest", "DeviceSubRequest".
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

from vcuda_hook.claims.dra_names import (
    CONFIG_FIELDS,
    CONFIG_KIND,
    CONFIG_TEXTS,
    CONFIG_VERSION,
    CORES,
    DRIVER,
    FENCED,
    MEMORY,
    MEMORY_STEP_BYTES,
    SHARES,
    UUID,
    WHOLE,
)
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.policies import ISOLATION, MIG
from vcuda_oci.model.request import Part
from vcuda_oci.model.sizes import LEAST_SHARE_BYTES
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ...kube import pod_amounts, pod_terms
from ..model.pod_request import ask_of

PREFIX = "vcuda."
MOST_SIZES = 8  # Source: FirstAvailableDeviceRequestMaxSize

Object = dict[str, Any]


def words(settings: Config) -> dict[str, str]:
    """Resource or annotation by the word that stands for it in a name; longer words first."""
    gpus = settings.gpu_resource
    resources = {
        "core": settings.core_resource,
        "memory": settings.memory_resource,
        "gpu": gpus,
        "mem": gpus and gpus + pod_amounts.HAMI_MEMORY,
        "percent": gpus and gpus + pod_amounts.HAMI_MEMORY_PERCENT,
        "cores": gpus and gpus + pod_amounts.HAMI_CORES,
    }
    terms = {word: annotation for annotation, word in pod_terms.WORDS.items()}
    return dict(sorted({**resources, **terms}.items(), key=lambda pair: -len(pair[0])))


def template(name: str, settings: Config, sizes: Callable[[], Sequence[int]]) -> Object:
    """The template's object, without a namespace.

    sizes: gives the memory capacities of the cluster's devices in bytes, for amounts in percent.
    Raises VcudaError: the name's amounts are invalid, or of too many sizes; what `sizes` raises.
    """
    ask = ask_of(_pod(name, settings), settings)
    if ask is None:
        raise VcudaError("asks for no part of a GPU", name, "write amounts above 0")
    (container,) = ask.containers
    shares = [(core, part) for part in container.parts for core in part.sizes]
    said = dict(ask.words)
    kind = FENCED.get(said.get(ISOLATION, settings.isolation), "")
    requests = [
        {"name": f"gpu-{at}", **_request(core, part, len(list(equal)), kind, settings, sizes, name)}
        for at, ((core, part), equal) in enumerate(itertools.groupby(shares))
    ]
    devices: Object = {"requests": requests}
    if len(shares) > 1:
        devices["constraints"] = [{"distinctAttribute": f"{DRIVER}/{UUID}"}]
    if parameters := _parameters(said):
        devices["config"] = [{"opaque": {"driver": DRIVER, "parameters": parameters}}]
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaimTemplate",
        "metadata": {"name": name},
        "spec": {"spec": {"devices": devices}},
    }


def _pod(name: str, settings: Config) -> Object:
    """The pod of one container that the name describes. Raises VcudaError: an unknown word."""
    known = words(settings)
    limits: dict[str, str] = {}
    annotations: dict[str, str] = {}
    for part in name[len(PREFIX) :].split("."):
        word = next((word for word in known if known[word] and part.startswith(word + "-")), None)
        if word is None:
            raise VcudaError(f"'{part}' is no amount", name, f"use {', '.join(known)}")
        said = annotations if word in pod_terms.WORDS.values() else limits
        if known[word] in said:
            raise VcudaError(f"'{word}' is said twice", name, "name each amount once")
        said[known[word]] = part[len(word) + 1 :]
    main = {"name": "main", "resources": {"limits": limits}}
    return {"metadata": {"annotations": annotations}, "spec": {"containers": [main]}}


def _request(
    core: int,
    part: Part,
    count: int,
    kind: str,
    settings: Config,
    sizes: Callable[[], Sequence[int]],
    name: str,
) -> Object:
    """One request of a claim, without its name: `count` devices with the same amounts.

    kind: the class of the isolation; "": none.
    """
    if kind == FENCED[MIG] and part.memory_percent is not None:
        raise VcudaError("isolation mig: memory in percent", name, "name the memory itself")
    if kind == FENCED[MIG] and part.memory_bytes is None:
        amounts = {"requests": {CORES: str(core)}}  # and whatever memory such a place has
        return {"exactly": {"deviceClassName": kind, "count": count, "capacity": amounts}}
    if core == 100 and kind != FENCED[MIG]:
        return {"exactly": {"deviceClassName": kind or WHOLE, "count": count}}
    if part.memory_bytes is not None:
        return {"exactly": _amounts(kind or SHARES, core, part.memory_bytes, count)}
    found = sizes()
    if len(found) > MOST_SIZES:
        what = f"memory in percent of GPUs of {len(found)} sizes"
        raise VcudaError(what, name, "name the memory itself")
    return {"firstAvailable": list(_of_each_size(kind, core, part, count, settings, found))}


def _of_each_size(
    kind: str, core: int, part: Part, count: int, settings: Config, sizes: Sequence[int]
) -> Iterator[Object]:
    for at, size in enumerate(sorted(sizes, reverse=True)):
        of_gpu = size if kind else rules_of(settings).memory_of(size)
        memory = max(part.memory_of(core, of_gpu), LEAST_SHARE_BYTES)
        cel = f'device.capacity["{DRIVER}"].{MEMORY}.compareTo(quantity("{size}")) == 0'
        amounts = _amounts(kind or SHARES, core, memory, count)
        yield {"name": f"size-{at}", **amounts, "selectors": [{"cel": {"expression": cel}}]}


def _amounts(kind: str, core: int, memory: int, count: int) -> Object:
    mib = memory // MEMORY_STEP_BYTES
    requests = {CORES: str(core), MEMORY: f"{mib}Mi"}
    return {"deviceClassName": kind, "count": count, "capacity": {"requests": requests}}


def _parameters(said: Mapping[str, str]) -> Object:
    """The claim's ShareConfig; {}: none. said: checked settings of the policy, by their word."""
    if not said:
        return {}
    fields = {
        field: said[word] if field in CONFIG_TEXTS else int(said[word])
        for field, word in CONFIG_FIELDS.items()
        if word in said
    }
    return {"apiVersion": CONFIG_VERSION, "kind": CONFIG_KIND, **fields}
