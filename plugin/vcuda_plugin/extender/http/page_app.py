"""Serve the cluster page: one path, read-only, for clients that show a token of the cluster."""

from __future__ import annotations

import asyncio
import re
import time
from collections.abc import Callable
from typing import Any
from urllib.parse import parse_qsl

from ...kube import json_bytes
from ...web import page_frame
from ..cluster.claims import Claims
from ..cluster.cluster import Cluster
from . import cluster_page, cluster_view
from .http_app import Answer, Receive, Scope, Send, line, send_answer, wrong_method
from .viewer_rights import Refused, Sight, ViewerRights, token_of

NOT_READY = "the cluster has not been read yet; it will be in a moment"
_FRESH_SECONDS = 2.0
_MOST_VIEWS = 64
_NAMESPACE = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
_MOST_NAME_CHARACTERS = 253
_ALWAYS = tuple((name.lower().encode(), value.encode()) for name, value in page_frame.ALWAYS)
_PAGE = page_frame.headers("'self'")
# A browser asks for a user and a password: any user, with a token as the password.
_ASK = (
    (b"www-authenticate", b'Basic realm="vcuda: any user, a token as password", charset="UTF-8"'),
    (b"www-authenticate", b'Bearer realm="vcuda"'),
)


class PageApp:
    """An ASGI application. ready: whether the cluster was read. claims: None: GPUs are not offered
    by DRA.
    """

    def __init__(
        self,
        cluster: Cluster,
        rights: ViewerRights,
        ready: Callable[[], bool],
        claims: Claims | None = None,
    ) -> None:
        self._cluster, self._rights, self._ready = cluster, rights, ready
        self._claims = claims
        self._views: dict[tuple[Sight, str], tuple[float, dict[str, Any]]] = {}
        # One at a time: each takes the cluster's lock, for which kube-scheduler's calls wait.
        self._viewing = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        answer = await self._answer(scope)
        await send_answer(send, answer._replace(headers=(*answer.headers, *_ALWAYS)))

    async def _answer(self, scope: Scope) -> Answer:
        path, method = scope["path"], scope["method"]
        if path not in ("", "/"):
            return line(f"{path[:200]} is not served; there is / only", 404)
        if method not in ("GET", "HEAD"):
            return wrong_method(path, "GET, HEAD")
        token = token_of([value for name, value in scope["headers"] if name == b"authorization"])
        if not token:
            text = "a token of the cluster is needed: as Bearer, or as the password of any user"
            return line(text, 401, _ASK)
        query = dict(parse_qsl(scope["query_string"].decode("latin-1")))
        namespace, after = query.get("namespace", ""), query.get("after", "")
        accepted = [value for name, value in scope["headers"] if name == b"accept"]
        as_html = any(b"text/html" in value for value in accepted)
        try:
            if namespace and not _NAMESPACE.fullmatch(namespace):
                raise Refused(400, "namespace: not a name of a namespace")
            sight = await self._rights.sight(token, namespace)
            if not self._ready():
                raise Refused(503, NOT_READY)
        except Refused as refused:
            return _refusal(refused, namespace, as_html)
        found = await self._view(sight, after[:_MOST_NAME_CHARACTERS])
        if as_html:
            return _html(await asyncio.to_thread(cluster_page.render, found), 200)
        return Answer(json_bytes.dumps(found), headers=((b"vary", b"Accept"),))

    async def _view(self, sight: Sight, after: str) -> dict[str, Any]:
        async with self._viewing:
            taken, found = self._views.get((sight, after), (0.0, {}))
            if not found or taken + _FRESH_SECONDS < time.monotonic():
                taken = time.monotonic()
                asked = self._cluster, sight, after, self._claims
                found = await asyncio.to_thread(cluster_view.view, *asked)
                if len(self._views) >= _MOST_VIEWS:
                    self._views.clear()
                self._views[sight, after] = taken, found
            return found


def _html(body: bytes, status: int) -> Answer:
    (_, kind), *others = _PAGE
    headers = tuple((name.lower().encode(), value.encode()) for name, value in others)
    return Answer(body, status, kind.encode(), headers)


def _refusal(refused: Refused, namespace: str, as_html: bool) -> Answer:
    if as_html and refused.status != 401:
        return _html(cluster_page.refusal(str(refused), namespace), refused.status)
    return line(str(refused), refused.status, _ASK if refused.status == 401 else ())
