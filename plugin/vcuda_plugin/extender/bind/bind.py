"""Bind a pod to a node and its GPUs by one call.

The API server merges a Binding's annotations into the pod in the same write that sets its node, and
only if the pod has the Binding's UID. So no pod is bound without a decision, and none is decided
without being bound. Source: k8s.io/kubernetes, pkg/registry/core/pod/storage, BindingREST.Create.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Protocol

from vcuda_oci.container.identity import pod_key
from vcuda_oci.ledger.decision import Decision
from vcuda_oci.model import names
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.errors import with_id
from vcuda_oci.placement.choose import Refused
from vcuda_oci.system.settings_file import Config

from ...kube.api import ApiError, message_of, path_of
from ..cluster.cluster import Cluster
from ..cluster.objects import NodeFacts, PodFacts, decided, pod_of
from ..filter.extender_api import Binding
from ..follow.async_api import Withheld
from ..model import annotations as known
from ..model.place import Placed
from ..model.pod_request import PodAsk

_log = logging.getLogger(__name__)


class Calls(Protocol):
    """The calls that bind, a part of `async_api.AsyncApi`."""

    async def call(
        self, method: str, path: str, body: Any = None, why_not: Callable[[], str] | None = None
    ) -> tuple[int, Any]: ...


class Binder:
    def __init__(
        self,
        cluster: Cluster,
        api: Calls,
        settings: Config,
        why_not: Callable[[], str] | None = None,
    ) -> None:
        """why_not: why this process may not bind now; "": it may. None: it always may."""
        self._cluster, self._api, self._settings = cluster, api, settings
        self._why_not = why_not

    async def bind(self, asked: Binding) -> str:
        """What went wrong; "": the pod is bound, now or by an earlier call."""
        pod: PodFacts | str = ""
        try:
            pod = self._cluster.pods.get(asked.uid) or await self._fetch(asked)
            failure = pod if isinstance(pod, str) else await self._bind(asked, pod)
        except Withheld as error:
            failure = str(error)
        except ApiError as error:
            failure = f"the API server: {error}"
        if failure:
            ask = pod.ask if isinstance(pod, PodFacts) else None
            # A pod with unknown containers has no ids here.
            for name in [each.name for each in ask.containers] if ask else [""]:
                _log.warning("%s", _line(asked, failure, name))
        return failure

    async def _bind(self, asked: Binding, pod: PodFacts) -> str:
        """Raises ApiError; Withheld."""
        # Checked after steps that may take seconds, and before anything is counted or sent.
        if self._why_not and (standby := self._why_not()):
            return standby
        if (pod.namespace, pod.name) != (asked.namespace, asked.name):
            return f"the pod with UID {asked.uid} is {pod.namespace}/{pod.name}"
        if pod.node:
            return _where(pod, asked)
        if pod.trouble:
            return pod.trouble
        if pod.ask is None:
            return await self._post(asked, {}, Placed(), self._why_not)
        return await self._reserve_and_post(asked, pod, pod.ask)

    async def _reserve_and_post(self, asked: Binding, pod: PodFacts, ask: PodAsk) -> str:
        cluster, now = self._cluster, time.monotonic()
        with cluster.lock:
            cluster.expire(now)
            seen = cluster.pods.get(asked.uid)
            if seen and seen.node:
                return _where(seen, asked)  # the event has arrived meanwhile
            entry = cluster.nodes.get(asked.node)
            if entry is None:
                return f"node {asked.node}: not known to the scheduler extender"
            assumed = cluster.assumed.get(asked.uid, {}).get(asked.node)
            over = None if assumed else cluster.quota.over(ask, entry.facts.group)
            if over or cluster.quota.trouble:
                return over.reason if over else cluster.quota.trouble
            placed = assumed.placed if assumed else cluster.find(entry, ask)
            if isinstance(placed, Refused):
                return f"node {asked.node}: {placed.reason}"
            if not cluster.assume(pod, asked.node, placed, now):
                return f"pod {asked.namespace}/{asked.name} is gone"
            facts = entry.facts

        def why_not() -> str:
            with cluster.lock:
                mine = cluster.assumed.get(asked.uid, {}).get(asked.node)
            if mine is None or mine.placed is not placed:
                return "standby: the lease was another's meanwhile"
            return self._why_not() if self._why_not else ""

        held = why_not if self._why_not else None
        return await self._post(asked, annotations_for(ask, placed, facts), placed, held)

    async def _post(
        self,
        asked: Binding,
        annotations: dict[str, str],
        placed: Placed,
        why_not: Callable[[], str] | None,
    ) -> str:
        """Raises ApiError: whether the pod is bound is unknown; Withheld: not by this call, but
        perhaps by an earlier one. In both cases the assumed placement stays."""
        metadata = {"name": asked.name, "namespace": asked.namespace, "uid": asked.uid}
        path = path_of("/api/v1", asked.namespace, "pods", asked.name) + "/binding"
        body = {
            "apiVersion": "v1",
            "kind": "Binding",
            "metadata": {**metadata, "annotations": annotations},
            "target": {"apiVersion": "v1", "kind": "Node", "name": asked.node},
        }
        status, answer = await self._api.call("POST", path, body, why_not)
        if status < 300:
            self._cluster.confirm(asked.uid, asked.node, time.monotonic())
            _log_bound(asked, placed.containers)
            return ""
        if status >= 500:
            raise ApiError(0, f"{status} {message_of(answer)}")
        if status == 409:
            # An earlier call may have bound it, and its answer was lost.
            pod = await self._fetch(asked)
            if isinstance(pod, PodFacts) and pod.node == asked.node:
                self._adopt(pod)
                _log_bound(asked, pod.decision.containers if pod.decision else {})
                return ""
        self._cluster.undo(asked.uid, asked.node)
        return f"the API server: {status} {message_of(answer)}"

    def _adopt(self, pod: PodFacts) -> None:
        """Count what the pod was bound with until its event arrives."""
        cluster, now = self._cluster, time.monotonic()
        with cluster.lock:
            seen, entry = cluster.pods.get(pod.uid), cluster.nodes.get(pod.node)
            if entry and pod.ask and pod.decision and not (seen and seen.node):
                placed = decided(pod.ask, pod.decision, entry.facts)
                if placed:
                    cluster.assume(pod, pod.node, placed, now)
            cluster.confirm(pod.uid, pod.node, now)

    async def _fetch(self, asked: Binding) -> PodFacts | str:
        """The pod as the API server has it, or why it cannot be bound. Raises ApiError."""
        where = f"pod {asked.namespace}/{asked.name}"
        path = path_of("/api/v1", asked.namespace, "pods", asked.name)
        status, pod = await self._api.call("GET", path)
        if status == 404:
            return f"{where} is gone"
        if status != 200 or not isinstance(pod, dict):
            return f"{where}: {status} {message_of(pod)}"
        uid = str(pod.get("metadata", {}).get("uid", ""))
        if uid != asked.uid:
            return f"{where} is another one now: UID {uid}, and {asked.uid} was to be bound"
        node = str(pod.get("spec", {}).get("nodeName") or "")
        facts = pod_of(pod, self._settings)
        return facts or PodFacts(uid, asked.namespace, asked.name, node)


def _where(pod: PodFacts, asked: Binding) -> str:
    return "" if pod.node == asked.node else f"the pod is bound to {pod.node} already"


def _log_bound(asked: Binding, containers: Mapping[str, Sequence[GpuShare]]) -> None:
    for name, shares in containers.items():
        _log.info("%s", _line(asked, "; ".join(each.amounts for each in shares), name))


def _line(asked: Binding, what: str, container: str) -> str:
    """A log line with the id that the container's allocation will have."""
    return with_id(f"{asked}: {what}", pod_key(asked.uid, container) if container else "")


def annotations_for(ask: PodAsk, placed: Placed, node: NodeFacts) -> dict[str, str]:
    """The annotations of a pod bound to `node`: the decision, and those of GPUManager."""
    annotations = {
        names.ANNOTATION_DECISION: Decision(placed.containers, dict(ask.words)).dump(),
        known.PREDICATE_TIME: str(time.time_ns()),
        known.PREDICATE_NODE: node.name,
        known.GPU_ASSIGNED: "false",
    }
    for each in ask.containers:
        if each.index >= 0:
            shares = placed.containers[each.name]
            gpus = ",".join(node.by_name[share.uuid].name for share in shares)
            annotations[f"{known.PREDICATE_GPU}{each.index}"] = gpus
    return annotations
