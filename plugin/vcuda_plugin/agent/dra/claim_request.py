"""What an allocated ResourceClaim gives its containers. Pure: no I/O.

The scheduler has written the devices and amounts to the claim's status. The parameters are the
author's, so each field is checked. Source: Kubernetes 1.36, resource.k8s.io/v1, "ResourceClaim";
docs/share-config.schema.json.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_hook.claims import quantity
from vcuda_hook.claims.dra_names import (
    CONFIG_FIELDS,
    CONFIG_KIND,
    CONFIG_TEXTS,
    CONFIG_VERSION,
    CORES,
    DRIVER,
    FENCED,
    MEMORY,
    SHARES,
)
from vcuda_oci.model import policies
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.policies import Terms
from vcuda_oci.model.request import Part, Request
from vcuda_oci.placement.mig import Place

from ...kube.api import Object
from . import devices


class Result(NamedTuple):
    """A device that the claim has. request: its name, of a subrequest the part before the "/"."""

    request: str
    pool: str
    device: str
    share_id: str


class ClaimRequest(NamedTuple):
    """results and shares have the same order. pod_uid, pod_name: of the claim's only pod, or "".
    place: of the GPU instance to create; None: none."""

    results: list[Result]
    shares: list[GpuShare]
    request: Request
    pod_uid: str
    pod_name: str
    place: Place | None = None


def of_claim(
    claim: Object,
    uid: str,
    node: str,
    gpus: Sequence[Gpu],
    places: Mapping[str, tuple[Place, GpuShare]] = {},
) -> ClaimRequest:
    """Read an object of the API. uid: that the kubelet named; node: this node, which is the pool.
    places: of GPU instances, by the device's name.

    Raises VcudaError: another claim, one without an allocation here, or parameters that are wrong.
    """
    about = claim.get("metadata") or {}
    where = f"claim {about.get('namespace')}/{about.get('name')}"
    if about.get("uid") != uid:
        hint = "the pod waits until its own claim is there"
        raise VcudaError(f"has the uid {about.get('uid')}, not {uid}", where, hint)
    status = claim.get("status") or {}
    allocated = (status.get("allocation") or {}).get("devices") or {}
    mine = [each for each in allocated.get("results") or () if each.get("driver") == DRIVER]
    if not mine:
        raise VcudaError(f"no device of {DRIVER} is allocated to it", where, "see its status")
    results = [_result(each, node, where) for each in mine]
    shares = [
        places[one.device][1] if one.device in places else _share(each, gpus, where)
        for one, each in zip(results, mine)
    ]
    has = [_isolation_of(each, places) for each in mine]
    terms = []
    for each, share, isolation in zip(mine, shares, has):
        is_whole = share.core_percent == 100 and isolation == policies.TURNS
        # A whole GPU has no policy; one that is named for all requests must be valid, no more.
        core = 1 if is_whole else share.core_percent
        one = _terms(allocated.get("config") or (), each, core, isolation, where)
        if not is_whole:
            terms.append(one)
    if any(other != terms[0] for other in terms):
        hint = f"give all requests of a claim the same {CONFIG_KIND}"
        raise VcudaError("its requests have different policies", where, hint)
    uuids = [share.uuid for share in shares]
    if len(set(uuids)) < len(uuids):
        hint = f"add a constraint with distinctAttribute: {DRIVER}/uuid"
        raise VcudaError("two of its devices are on one GPU", where, hint)
    parts = [Part(share.core_percent, share.memory_bytes) for share in shares]
    # The shares name the GPUs: with names of its own, each part of the request would need them all.
    request = Request(parts, (), terms[0] if terms else Terms())
    found = [places[each.device][0] for each in results if each.device in places]
    if found and len(results) > 1:
        hint = "ask for one device"
        raise VcudaError("isolation mig: a claim has one GPU instance", where, hint)
    return ClaimRequest(results, shares, request, *_pod_of(claim), found[0] if found else None)


def name_of(claim: Object) -> str:
    """ "namespace/pod/claim"; the claim stands for its pods if it has several, or none yet."""
    namespace, name = (str(claim["metadata"].get(key)) for key in ("namespace", "name"))
    return f"{namespace}/{_pod_of(claim)[1] or name}/{name}"


def _pod_of(claim: Object) -> tuple[str, str]:
    """UID and name of the claim's only pod, or "" and ""."""
    users = (claim.get("status") or {}).get("reservedFor") or ()
    pods = [each for each in users if each.get("resource") == "pods"]
    pod = pods[0] if len(pods) == 1 else {}
    return str(pod.get("uid", "")), str(pod.get("name", ""))


def _result(each: Object, node: str, where: str) -> Result:
    if each.get("pool") != node:
        hint = "its pod belongs on that node"
        raise VcudaError(f"is allocated in the pool {each.get('pool')}", where, hint)
    if each.get("adminAccess"):
        hint = "read the GPU's figures from the node agent's /metrics instead"
        raise VcudaError("asks for admin access, which gives no share", where, hint)
    request = str(each.get("request", "")).partition("/")[0]
    return Result(request, node, str(each.get("device")), str(each.get("shareID") or ""))


def _isolation_of(result: Object, places: Container[str]) -> str:
    """What the device is for."""
    name = str(result.get("device"))
    if name in places:
        return policies.MIG
    return policies.MPS if name.endswith(devices.MPS_END) else policies.TURNS


def _share(each: Object, gpus: Sequence[Gpu], where: str) -> GpuShare:
    name = str(each.get("device")).removesuffix(devices.MPS_END)
    gpu = next((gpu for gpu in gpus if devices.name_of(gpu.uuid) == name), None)
    if gpu is None:
        hint = "delete the pod, and it is scheduled anew"
        raise VcudaError(f"device '{name}' is not here", where, hint)
    # Without amounts the API server does not know shares: the device belongs to this claim alone.
    consumed = each.get("consumedCapacity") or {}
    cores = quantity.whole(consumed.get(CORES, 100))
    memory = quantity.whole(consumed.get(MEMORY, gpu.memory_bytes))
    if not cores or not memory or cores > 100:
        hint = "delete the pod, and it is scheduled anew"
        raise VcudaError(f"its amounts are invalid: {consumed}"[:300], where, hint)
    return GpuShare(gpu.uuid, memory, cores)


def _terms(
    configs: Sequence[Object], result: Object, core: int, isolation: str, where: str
) -> Terms:
    """The policy of a result. The last configuration counts; those of the class come first."""
    request = str(result.get("request", ""))
    names = {request, request.partition("/")[0]}
    words: dict[str, str] = {}
    for config in configs:
        opaque, chosen = config.get("opaque") or {}, config.get("requests")
        if opaque.get("driver") == DRIVER and (not chosen or names & set(chosen)):
            words = _words(opaque.get("parameters"), where)
    terms = policies.parse(words, core, where)
    return terms.replaced(isolation=_isolation(terms.isolation, isolation, where))


def _isolation(said: str, has: str, where: str) -> str:
    """The isolation that the device has. Raises VcudaError: the parameters say another one.

    kube-scheduler keeps devices of several kinds apart, and reads no parameters.
    """
    if said in ("", policies.AUTO, has):
        return has if has != policies.TURNS else said
    what = f"isolation {said}: its device is not of that kind"
    raise VcudaError(what, where, f"use deviceClassName: {FENCED.get(said, SHARES)}")


def _words(parameters: Any, where: str) -> dict[str, str]:
    """The words of a ShareConfig. Raises VcudaError: not one, or a field of the wrong type."""
    hint = f"write apiVersion: {CONFIG_VERSION}, kind: {CONFIG_KIND} and {', '.join(CONFIG_FIELDS)}"
    if not isinstance(parameters, dict):
        raise VcudaError("its parameters are not an object", where, hint)
    kind = (parameters.get("apiVersion"), parameters.get("kind"))
    if kind != (CONFIG_VERSION, CONFIG_KIND):
        raise VcudaError(f"its parameters are of kind {kind}"[:200], where, hint)
    words: dict[str, str] = {}
    for key, value in parameters.items():
        if key in ("apiVersion", "kind"):
            continue
        if key not in CONFIG_FIELDS:
            raise VcudaError(f"its parameters have an unknown field '{key}'"[:200], where, hint)
        if type(value) is not (str if key in CONFIG_TEXTS else int):
            raise VcudaError(f"{key} cannot be {value!r}"[:200], where, hint)
        words[CONFIG_FIELDS[key]] = str(value)
    return words
