"""The extender's HTTP: kube-scheduler's four verbs, and what people and probes ask."""

from __future__ import annotations

import asyncio
import logging
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import TYPE_CHECKING

from starlette.applications import Starlette
from starlette.responses import Response
from starlette.routing import Route

from vcuda_oci import names
from vcuda_oci.errors import VcudaError

from . import extender_api, inspect, json_bytes
from .api import CONNECTIONS
from .ask import ask_of
from .extender_api import Malformed
from .fit import Verdict, fit
from .metrics import Metrics
from .objects import priority_of
from .preempt import preempt
from .score import scores

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from starlette.requests import Request

    from vcuda_oci.config import Config

    from .bind import Binder
    from .cluster import Cluster
    from .follow import Follower

# A thousand nodes as whole objects; of five thousand the scheduler sends the names.
MOST_BODY_BYTES = 32 << 20
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
    ) -> None:
        """why_not: why this process may not bind now; "": it may."""
        self._why_not = why_not
        self._cluster, self._binder, self._followers = cluster, binder, followers
        self._settings, self._metrics = settings, Metrics(cluster, followers, why_not)
        self._threads = ThreadPoolExecutor(CONNECTIONS, "bind")
        self.app = Starlette(
            routes=[
                self._post("predicates", self._filter),
                self._post("priorities", self._prioritize),
                self._post("bind", self._bind),
                self._post("preempt", self._preempt),
                Route("/healthz", self._healthz),
                Route("/readyz", self._readyz),
                Route("/version", self._version),
                Route("/metrics", self._page),
                Route("/inspect", self._inspect),
                Route("/inspect/{node}", self._inspect),
            ]
        )

    @property
    def ready(self) -> bool:
        return all(follower.synced.is_set() for follower in self._followers)

    def finish(self) -> None:
        """Nothing is being bound any more."""
        self._threads.shutdown(cancel_futures=True)

    def _post(self, verb: str, answer: Callable[[bytes], object]) -> Route:
        async def call(request: Request) -> Response:
            began = time.perf_counter()
            body = await _body(request)
            if body is None:
                self._metrics.failures.labels(verb).inc()
                return _line(f"{verb}: more than {MOST_BODY_BYTES} bytes were sent", 413)
            try:
                found = answer(body)
                if asyncio.iscoroutine(found):
                    found = await found
            except Malformed as error:
                self._metrics.failures.labels(verb).inc()
                return _line(f"{verb}: {error}", 400)
            self._metrics.seconds.labels(verb).observe(time.perf_counter() - began)
            return found if isinstance(found, Response) else _json(found)

        return Route(f"/scheduler/{verb}", call, methods=["POST"])

    def _filter(self, body: bytes) -> bytes:
        asked = extender_api.candidates(body)
        if not self.ready:
            # The scheduler shows this to the pod's owner; a status other than 200 it would not.
            self._metrics.failures.labels("predicates").inc()
            return extender_api.filter_error(NOT_READY)
        self._cluster.expire(time.monotonic())
        try:
            ask = ask_of(asked.pod, self._settings)
        except VcudaError as error:
            return extender_api.filter_result(
                asked, Verdict(never=dict.fromkeys(asked.names, str(error)))
            )
        if self._cluster.quota.trouble and ask:
            self._metrics.failures.labels("predicates").inc()
            return extender_api.filter_error(self._cluster.quota.trouble)
        verdict = fit(self._cluster, ask, asked.names) if ask else Verdict(asked.names)
        return extender_api.filter_result(asked, verdict)

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
            loop = asyncio.get_running_loop()
            failure = await loop.run_in_executor(self._threads, self._binder.bind, asked)
        else:
            failure = NOT_READY
        if failure:
            self._metrics.failures.labels("bind").inc()
            pod = f"{asked.namespace}/{asked.name} ({asked.uid})"
            _log.warning("bind %s to %s: %s", pod, asked.node, failure)
        return extender_api.binding_result(failure)

    async def _preempt(self, body: bytes) -> bytes | Response:
        pod, given = extender_api.preemption(body)
        if not self.ready:
            # The answer has no room for a reason.
            self._metrics.failures.labels("preempt").inc()
            return _line(NOT_READY, 503)
        try:
            ask = ask_of(pod, self._settings)
        except VcudaError:
            given, ask = {}, None  # it is refused whoever goes
        if ask is None:
            return extender_api.preemption_result(given)
        loop, priority = asyncio.get_running_loop(), priority_of(pod)
        look = partial(preempt, self._cluster, ask, priority, given)
        return extender_api.preemption_result(await loop.run_in_executor(self._threads, look))

    async def _healthz(self, request: Request) -> Response:
        return _line("ok", 200)

    async def _readyz(self, request: Request) -> Response:
        why = self._why_not() if self.ready else NOT_READY
        return _line(why, 503) if why else _line("ok", 200)

    async def _version(self, request: Request) -> Response:
        return _json(json_bytes.dumps({"version": names.VERSION}))

    async def _page(self, request: Request) -> Response:
        return Response(self._metrics.page(), media_type="text/plain; version=0.0.4")

    async def _inspect(self, request: Request) -> Response:
        name = request.path_params.get("node")
        found = inspect.node(self._cluster, name) if name else inspect.nodes(self._cluster)
        if found is None:
            return _line(f"node '{name}' is not known", 404)
        return _json(json_bytes.dumps(found))


async def _body(request: Request) -> bytes | None:
    """None: it is too long; what came of it is not kept."""
    length = request.headers.get("content-length", "0")
    if not length.isdigit() or int(length) > MOST_BODY_BYTES:
        return None
    body = bytearray()
    async for piece in request.stream():
        body += piece
        if len(body) > MOST_BODY_BYTES:
            return None
    return bytes(body)


def _json(body: object) -> Response:
    return Response(body, media_type="application/json")


def _line(text: str, status: int) -> Response:
    return Response(text + "\n", status, media_type="text/plain")
