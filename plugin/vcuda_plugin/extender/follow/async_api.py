"""Single calls of the API server on the event loop, so that no thread waits for an answer.

A thread for each call, woken twice, takes as long as all other work of a binding. `KubeApi`
provides the server's address and certificates.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from typing import Any

from ...kube import json_bytes
from ...kube.api import CALL_SECONDS, CONNECTIONS, ApiError, KubeApi
from .access import Access, access_by
from .http_client import Connection

# A renewed token or certificate is read again after this time.
_ACCESS_SECONDS = 60.0


class Withheld(Exception):
    """A call was not sent; the text is the reason."""


class AsyncApi:
    """Calls within one event loop."""

    def __init__(self, api: KubeApi) -> None:
        self._api = api
        self._access: Access | None = None
        self._until = 0.0
        self._renewing = asyncio.Lock()
        # A slot for each call, with the connection that an earlier call left open, the latest
        # first.
        self._turns: asyncio.LifoQueue[Connection | None] = asyncio.LifoQueue()
        for _ in range(CONNECTIONS):
            self._turns.put_nowait(None)

    async def call(
        self, method: str, path: str, body: Any = None, why_not: Callable[[], str] | None = None
    ) -> tuple[int, Any]:
        """The status and the object that came with it.

        why_not: why it may not be done any more; "": it may. It is asked once the server has begun
        with the call and only the body is missing. For what comes more than CALL_SECONDS after that
        beginning the server does nothing: so whatever stops this process, or the network, between
        the question and the body, no call is done much later than it might be. That holds of
        Kubernetes from 1.21 on, unless a proxy is between.
        Source: apiserver, pkg/endpoints/filters/request_deadline.go; Go, net/http/server.go.

        Raises ApiError, with status 0; Withheld.
        """
        data = b"" if body is None else json_bytes.dumps(body)

        def rest() -> bytes:
            if why_not and (why := why_not()):
                raise Withheld(why)
            return data

        def by_proxy() -> tuple[int, Any]:
            rest()
            return self._api.call(method, path, body)

        try:
            if self._until < time.monotonic():
                await self._renew()
            if self._access is None:
                return await asyncio.to_thread(by_proxy)
            if why_not:
                query = f"?timeout={CALL_SECONDS:g}s"
                status, text = await self._ask(self._access, method, path + query, data, rest)
            else:
                status, text = await self._ask(self._access, method, path, data)
            return status, json_bytes.loads(text)
        except asyncio.TimeoutError:
            reason = f"{method} {path}: no answer within {CALL_SECONDS:g} s"
            raise ApiError(0, reason) from None
        except (OSError, ValueError) as error:
            raise ApiError(0, f"{method} {path}: {error}") from error

    async def _ask(
        self,
        access: Access,
        method: str,
        path: str,
        data: bytes,
        rest: Callable[[], bytes] | None = None,
    ) -> tuple[int, bytes]:
        """rest: gives `data` when the server asks for it; None: it is sent at once."""
        expect = "Expect: 100-continue\r\n" if rest else ""
        request = (
            f"{method} {access.prefix}{path} HTTP/1.1\r\n{access.headers}{expect}"
            f"Content-Length: {len(data)}\r\n\r\n"
        ).encode("latin-1")
        loop = asyncio.get_running_loop()
        until = loop.time() + CALL_SECONDS
        if self._turns.empty():
            connection = await asyncio.wait_for(self._turns.get(), CALL_SECONDS)
        else:
            connection = self._turns.get_nowait()
        try:
            if connection is None or not connection.serves(access.server):
                if connection:
                    connection.close()
                left = until - loop.time()
                connection = await asyncio.wait_for(Connection.to(access.server), left)
            return await connection.ask(request if rest else request + data, until, rest)
        finally:
            self._turns.put_nowait(connection)

    async def _renew(self) -> None:
        """In a thread: files are read, and a program may be asked for a token."""
        async with self._renewing:
            if self._until < time.monotonic():
                self._access = await asyncio.to_thread(access_by, self._api)
                self._until = time.monotonic() + _ACCESS_SECONDS
