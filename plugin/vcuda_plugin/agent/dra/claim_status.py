"""Reports in a claim's status what its containers got: `kubectl describe resourceclaim` shows it.

It is written a second after the answer to the kubelet, so that it takes no processor from the
pod's start. The API server removes it with the allocation. An agent may write it for claims of its
own node and driver only: the API server asks for the verb "associated-node:patch" of
resourceclaims/driver. Source: Kubernetes 1.36, pkg/registry/resource, AuthorizedForDeviceStatus;
resource.k8s.io/v1, "AllocatedDeviceStatus".
"""

from __future__ import annotations

import logging
import queue
import time

from vcuda_hook.claims.dra_names import DRIVER

from ...kube import api as kube_api
from ...kube.api import ApiError, KubeApi, Object, message_of
from ...kube.retry import Retry
from .claim_request import ClaimRequest

_APPLY = "application/apply-patch+yaml"  # merges the devices by name; JSON is YAML
_MOST_WAITING = 1000
_REST_SECONDS = 1.0
_REASON = "Prepared"

_log = logging.getLogger(__name__)


def path_of(namespace: str, name: str) -> str:
    return kube_api.path_of("/apis/resource.k8s.io/v1", namespace, "resourceclaims", name)


def report_of(claim: Object, wanted: ClaimRequest, node: str, now: float) -> Object | None:
    """The patch of the claim's status; None: the claim says so already. now: seconds since 1970."""
    devices = []
    for result, share in zip(wanted.results, wanted.shares):
        mib = share.memory_bytes >> 20
        text = f"{share.core_percent} % of the time and {mib} MiB of {share.uuid} on node {node}"
        condition = {
            "type": "Ready",
            "status": "True",
            "reason": _REASON,
            "message": text,
            "lastTransitionTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
        }
        data = {
            "uuid": share.uuid,
            "cores": share.core_percent,
            "memoryBytes": share.memory_bytes,
            "node": node,
        }
        device: Object = {"driver": DRIVER, "pool": result.pool, "device": result.device}
        if result.share_id:
            device["shareID"] = result.share_id
        devices.append({**device, "conditions": [condition], "data": data})
    known = (claim.get("status") or {}).get("devices") or ()
    if all(_key(device) in [_key(each) for each in known] for device in devices):
        return None
    return {
        "apiVersion": "resource.k8s.io/v1",
        "kind": "ResourceClaim",
        "metadata": {"name": claim["metadata"]["name"], "uid": claim["metadata"]["uid"]},
        "status": {"devices": devices},
    }


def _key(device: Object) -> tuple[object, ...]:
    keys = ("driver", "pool", "device", "shareID", "data")
    return tuple(str(device.get(key)) for key in keys)


class Reports:
    """Reports that wait to be written. Run `write` in a thread of its own."""

    def __init__(self, node: str) -> None:
        self._node = node
        self._waiting: queue.Queue[tuple[float, str, Object]] = queue.Queue(_MOST_WAITING)

    def add(self, claim: Object, wanted: ClaimRequest) -> None:
        """Report a prepared claim. Never waits: beyond _MOST_WAITING none is added."""
        report = report_of(claim, wanted, self._node, time.time())
        if report and not self._waiting.full():
            due = time.monotonic() + _REST_SECONDS
            self._waiting.put((due, str(claim["metadata"]["namespace"]), report))

    def write(self, api: KubeApi) -> None:
        """Write each report once, until the process ends. One that fails is missing only."""
        retry = Retry(_log.warning)
        query = {"fieldManager": DRIVER, "force": "true"}
        while True:
            due, namespace, report = self._waiting.get()
            time.sleep(max(0.0, due - time.monotonic()))
            path = path_of(namespace, report["metadata"]["name"]) + "/status"
            try:
                status, answer = api.call("PATCH", path, report, query=query, kind=_APPLY)
                if status < 300 or status in (404, 409):  # another claim of the name, or none
                    retry.forget()
                else:
                    raise ApiError(status, f"{status} {message_of(answer)}")
            except ApiError as error:
                retry.after(f"status of claim {namespace}/{report['metadata']['name']}: {error}")
