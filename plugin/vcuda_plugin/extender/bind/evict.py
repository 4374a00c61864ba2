"""Evict pods for one that fits no node only because what is free lies on several GPUs.

kube-scheduler asks an extender about victims only if its own sums over the node require some. Where
the sums suffice it finds "no victims" and leaves the pod waiting, though a lower pod holds the GPU
that it needs. Source: kubernetes, pkg/scheduler/framework/preemption, SelectVictimsOnNode. Then the
extender evicts, once kube-scheduler has had the time to name a node for the pod itself.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Sequence

from ...kube.api import ApiError, Object, message_of, path_of
from ..cluster.cluster import Cluster
from ..cluster.objects import priority_of
from ..filter.preempt import Victims, preempt
from ..follow.async_api import AsyncApi
from ..model.pod_request import PodAsk

WAIT_SECONDS = 2.0
# After that time victims are chosen again, if those have not ended.
_AGAIN_SECONDS = 60.0
_MOST_WAITING = 1000

_log = logging.getLogger(__name__)


class Evictions:
    def __init__(self, cluster: Cluster, api: AsyncApi) -> None:
        self._cluster, self._api = cluster, api
        self._waiting: dict[str, asyncio.Task[None]] = {}  # by the pod's UID

    def refused(self, pod: Object, ask: PodAsk, nodes: Sequence[str]) -> None:
        """Note that none of the nodes fits the pod, though kube-scheduler's sums do. Does not
        wait."""
        uid = str(pod["metadata"].get("uid", ""))
        may = (pod.get("spec") or {}).get("preemptionPolicy") != "Never"
        if may and nodes and uid not in self._waiting and len(self._waiting) < _MOST_WAITING:
            task = asyncio.ensure_future(self._run(pod, ask, nodes))
            self._waiting[uid] = task
            task.add_done_callback(lambda _: self._waiting.pop(uid, None))

    async def _run(self, pod: Object, ask: PodAsk, nodes: Sequence[str]) -> None:
        await asyncio.sleep(WAIT_SECONDS)
        try:
            if not await self._waits(pod):
                return
            given = dict.fromkeys(nodes, Victims(()))
            found = await asyncio.to_thread(preempt, self._cluster, ask, priority_of(pod), given)
            if found:
                node = min(found, key=lambda name: self._cost(found[name]))
                await self._evict(pod, node, found[node])
                await asyncio.sleep(_AGAIN_SECONDS)
        except ApiError as error:
            _log.warning("%s: no pod is evicted: %s", _name(pod), error)

    async def _waits(self, pod: Object) -> bool:
        """Whether the pod still has no node, and none was named for it by a preemption."""
        status, now = await self._api.call("GET", _path(pod["metadata"]))
        if status != 200 or now["metadata"].get("uid") != pod["metadata"].get("uid"):
            return False
        if now["metadata"].get("deletionTimestamp") or now["spec"].get("nodeName"):
            return False
        return not (now.get("status") or {}).get("nominatedNodeName")

    def _cost(self, victims: Victims) -> tuple[int, int]:
        pods = self._cluster.pods
        return max(pods[uid].priority for uid in victims.uids if uid in pods), len(victims.uids)

    async def _evict(self, pod: Object, node: str, victims: Victims) -> None:
        """By the Eviction API, so that PodDisruptionBudgets hold."""
        for uid in victims.uids:
            victim = self._cluster.pods.get(uid)
            if victim is None:
                continue
            metadata = {"namespace": victim.namespace, "name": victim.name}
            body = {
                "apiVersion": "policy/v1",
                "kind": "Eviction",
                "metadata": metadata,
                "deleteOptions": {"preconditions": {"uid": uid}},
            }
            status, answer = await self._api.call("POST", _path(metadata) + "/eviction", body)
            if status >= 300 and status != 404:
                raise ApiError(status, f"{_name(body)}: {status} {message_of(answer)}")
            text = "evicted %s (%s) from node %s for pod %s, which fits no other GPU"
            _log.info(text, _name(body), uid, node, _name(pod))


def _name(thing: Object) -> str:
    return f"{thing['metadata'].get('namespace')}/{thing['metadata'].get('name')}"


def _path(metadata: Object) -> str:
    return path_of("/api/v1", str(metadata.get("namespace")), "pods", str(metadata.get("name")))
