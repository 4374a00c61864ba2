"""Turn a node's events into Kubernetes Events of its pods, counted and paced: pure.

Source: Kubernetes API, "Event v1"; client-go tools/record, which uses these names and
fields. An Event lives for an hour in the API (kube-apiserver --event-ttl).
"""

from __future__ import annotations

import hashlib
import re
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.container.identity import pod_uid
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation

REASONS = {
    events.REFUSED: "GpuShareRefused",
    events.THROTTLED: "GpuShareThrottled",
    events.OUT_OF_MEMORY: "GpuMemoryLimitReached",
    events.BYPASS_FOUND: "GpuLimitBypassed",
    events.TURN_OVERRUN: "GpuTurnOverrun",
    events.GPU_UNHEALTHY: "GpuUnhealthy",
    events.UNCLAIMED: "GpuShareMissing",
    events.MPS_ENDED: "GpuMpsEnded",
    events.NO_GPUS: "NoGpusFound",  # of the agent's own pod
}
_MOST_TEXT = 1000  # bytes of a message; the API accepts 1 KiB
_MOST_NAME = 253
# Valid names of a namespace and a pod, and UIDs as the API and the kubelet generate them.
_NAME = re.compile(r"[a-z0-9]([-.a-z0-9]{0,251}[a-z0-9])?")
_UID = re.compile(r"[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}|[0-9a-f]{32}")


class Happened(NamedTuple):
    """What happened to one container of a pod. key: of everything that is counted together. at:
    seconds since 1970.
    """

    key: tuple[str, str, str]
    namespace: str
    pod: str
    uid: str
    reason: str
    text: str
    times: int
    at: float


def of_event(event: Mapping[str, Any], held: Sequence[Allocation]) -> Iterator[Happened]:
    """Yield one item per pod that an event concerns. held: every allocation; an event of a GPU
    concerns each pod with a share of it. The turn keeper does not know pods."""
    kind, gpu = event["kind"], str(event.get("gpu", ""))
    if kind in (events.GPU_UNHEALTHY, events.TURN_OVERRUN):
        for allocation in held:
            if (
                allocation.id == event["allocation"]
                if kind == events.TURN_OVERRUN
                else any(share.uuid == gpu for share in allocation.shares)
            ):
                about = events.about(allocation.container_id, allocation.pod)
                yield from _of_container(event, gpu, allocation.id, about.get("pod", ""))
    elif kind in REASONS:
        yield from _of_container(event, gpu, event["allocation"], str(event.get("pod", "")))


def _of_container(
    event: Mapping[str, Any], gpu: str, allocation: str, name: str
) -> Iterator[Happened]:
    """Yields nothing if the names are not valid for a pod: they become part of a path."""
    namespace, _, rest = name.partition("/")
    pod, _, container = rest.partition("/")
    uid = pod_uid(allocation, container)
    if not (_NAME.fullmatch(namespace) and _NAME.fullmatch(pod) and _UID.fullmatch(uid)):
        return
    reason, times = REASONS[event["kind"]], event.get("times", 1)
    text = (
        event["text"]
        if reason == REASONS[events.NO_GPUS]
        else f"allocation {allocation}: {event['text']}"
    )
    cut = text.encode(errors="replace")[:_MOST_TEXT].decode(errors="ignore")
    yield Happened(
        (reason, allocation, gpu),
        namespace,
        pod,
        uid,
        reason,
        cut,
        times if type(times) is int and 0 < times < 1 << 31 else 1,
        event["time"],
    )


def name_of(first: Happened) -> str:
    """Return the same name for the same first time, so that creating the Event twice is safe."""
    text = "\0".join((*first.key, first.uid, repr(first.at)))
    end = "." + hashlib.sha256(text.encode(errors="replace")).hexdigest()[:16]
    return first.pod[: _MOST_NAME - len(end)].rstrip(".-") + end


def created(first: Happened, last: Happened, count: int, node: str) -> dict[str, Any]:
    """The Event's object. first, last: times of the first and last occurrence."""
    about = {"name": first.pod, "namespace": first.namespace, "uid": first.uid}
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": name_of(first), "namespace": first.namespace},
        "involvedObject": {"apiVersion": "v1", "kind": "Pod", **about},
        "reason": first.reason,
        "type": "Warning",
        "source": {"component": names.AGENT_PROGRAM, "host": node},
        "reportingComponent": names.AGENT_PROGRAM,
        "reportingInstance": node,
        "firstTimestamp": _time(first.at),
        **counted(last, count),
    }


def counted(last: Happened, count: int) -> dict[str, Any]:
    """The fields of an Event that change with each occurrence."""
    count = min(count, (1 << 31) - 1)  # it is an int32
    return {"message": last.text, "count": count, "lastTimestamp": _time(last.at)}


def _time(at: float) -> str:
    return time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(at))
