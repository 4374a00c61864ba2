"""The extender's HTTP paths: kube-scheduler's four verbs, probes, metrics and /inspect."""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ...kube import json_bytes
from ..bind.bind import Binder
from ..bind.evict import Evictions
from ..cluster.cluster import Cluster
from ..cluster.objects import pod_of, priority_of
from ..filter import extender_api
from ..filter.extender_api import Candidates, Malformed
from ..filter.fit import Verdict, fit
from ..filter.gang import Gangs, group_of
from ..filter.patience import Patience
from ..filter.preempt import preempt
from ..filter.score import scores
from ..follow.follow import Follower
from ..model.pod_request import PodAsk, ask_of
from . import inspect
from .http_app import MOST_BODY_BYTES, PROMETHEUS, Answer, HttpApp, Post, line
from .metrics import Metrics

Verb = Callable[[bytes], Answer | bytes | Coroutine[Any, Any, Answer | bytes]]

NOT_READY = "the scheduler extender has not read the cluster yet; it will in a moment"

_log = logging.getLogger(__name__)


class Server:
    def __init__(
        self,
        cluster: Cluster,
        binder: Binder,
        followers: Sequence[Follower],
        settings: Config,
        why_not: Callable[[], str] = str,
        evictions: Evictions | None = None,
    ) -> None:
        """why_not: why this process may not bind now; "": it may. evictions: None: it may evict
        no pod."""
        self._why_not, self._evictions = why_not, evictions
        self._cluster, self._binder, self._followers = cluster, binder, followers
        self._settings, self._metrics = settings, Metrics(cluster, followers, why_not)
        self._gangs, self._patience = Gangs(cluster), Patience(cluster)
        answers: dict[str, Verb] = {
            "predicates": self._filter,
            "priorities": self._prioritize,
            "bind": self._bind,
            "preempt": self._preempt,
        }
        self.app = HttpApp(
            {f"/scheduler/{verb}": self._post(verb, answer) for verb, answer in answers.items()},
            {
                "/healthz": lambda _: line("ok", 200),
                "/readyz": self._readyz,
                "/version": lambda _: Answer(json_bytes.dumps({"version": names.VERSION})),
                "/metrics": lambda _: Answer(self._metrics.page(), kind=PROMETHEUS),
                "/inspect": lambda _: Answer(json_bytes.dumps(inspect.nodes(self._cluster))),
                "/inspect/": self._inspect,
            },
        )

    @property
    def ready(self) -> bool:
        return all(follower.synced.is_set() for follower in self._followers)

    def _post(self, verb: str, answer: Verb) -> Post:
        # Create both series at the start: Prometheus cannot see the increase of a series that
        # begins at 1.
        seconds, failures = self._metrics.seconds.labels(verb), self._metrics.failures.labels(verb)

        async def call(body: bytes | None) -> Answer:
            began = time.perf_counter()
            if body is None:
                failures.inc()
                return line(f"{verb}: more than {MOST_BODY_BYTES} bytes were sent", 413)
            try:
                found = answer(body)
                if isinstance(found, Coroutine):
                    found = await found
            except Malformed as error:
                failures.inc()
                return line(f"{verb}: {error}", 400)
            seconds.observe(time.perf_counter() - began)
            return found if isinstance(found, Answer) else Answer(found)

        return call

    async def _filter(self, body: bytes) -> bytes:
        asked = extender_api.candidates(body)
        if not self.ready:
            # Status 200: only then does the scheduler show the reason to the pod's owner.
            self._metrics.failures.labels("predicates").inc()
            return extender_api.filter_error(NOT_READY)
        self._cluster.expire(time.monotonic())
        self._gangs.expire(time.monotonic())
        try:
            ask = ask_of(asked.pod, self._settings)
        except VcudaError as error:
            return extender_api.filter_result(
                asked, Verdict(never=dict.fromkeys(asked.names, str(error)))
            )
        if self._cluster.quota.trouble and ask:
            self._metrics.failures.labels("predicates").inc()
            return extender_api.filter_error(self._cluster.quota.trouble)
        verdict = await self._fit(asked, ask) if ask else Verdict(asked.names)
        if ask and self._evictions and not verdict.fitting and not self._why_not():
            self._evictions.refused(asked.pod, ask, list(verdict.refused))
        return extender_api.filter_result(asked, verdict)

    async def _fit(self, asked: Candidates, ask: PodAsk) -> Verdict:
        group = group_of(asked.pod)
        pod = pod_of(asked.pod, self._settings) if group else None
        if group is None or pod is None or self._why_not():
            return await self._patience.found(lambda: fit(self._cluster, ask, asked.names))
        return self._gangs.fit(pod, group, ask, asked.names)

    def _prioritize(self, body: bytes) -> bytes:
        asked = extender_api.candidates(body)
        try:
            ask = ask_of(asked.pod, self._settings) if self.ready else None
        except VcudaError:
            ask = None
        found = scores(self._cluster, ask, asked.names) if ask else [0] * len(asked.names)
        return extender_api.priorities(asked.names, found)

    async def _bind(self, body: bytes) -> bytes:
        asked = extender_api.binding(body)
        if self.ready:
            self._gangs.bound(asked.uid)
            failure = await self._binder.bind(asked)
        else:
            failure = NOT_READY
            _log.warning("%s: %s", asked, failure)
        if failure:
            self._metrics.failures.labels("bind").inc()
        return extender_api.binding_result(failure)

    async def _preempt(self, body: bytes) -> bytes | Answer:
        pod, given = extender_api.preemption(body)
        if not self.ready:
            # The answer has no room for a reason.
            self._metrics.failures.labels("preempt").inc()
            return line(NOT_READY, 503)
        try:
            ask = ask_of(pod, self._settings)
        except VcudaError:
            given, ask = {}, None  # no eviction can make it fit
        if ask is None:
            return extender_api.preemption_result(given)
        # In a thread, because it checks every victim of every node.
        found = await asyncio.to_thread(preempt, self._cluster, ask, priority_of(pod), given)
        return extender_api.preemption_result(found)

    def _readyz(self, _: str) -> Answer:
        why = self._why_not() if self.ready else NOT_READY
        return line(why, 503) if why else line("ok", 200)

    def _inspect(self, name: str) -> Answer:
        found = inspect.node(self._cluster, name)
        if found is None:
            return line(f"node '{name}' is not known", 404)
        return Answer(json_bytes.dumps(found))
