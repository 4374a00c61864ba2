"""Single calls of the API server on the event loop, so that no thread waits for an answer.

A thread for each call, woken twice, takes as long as all other work of a binding. `KubeApi`
provides the server's address and certificates.
"""

from __future__ import annotations

import asyncio
import ssl
import time
from collections.abc import Callable
from typing import Any, NamedTuple
from urllib.parse import urlsplit

from ...kube import json_bytes
from ...kube.api import CALL_SECONDS, CONNECTIONS, ApiError, KubeApi
from .http_client import Connection, Server

# A renewed token or certificate is read again after this time.
_ACCESS_SECONDS = 60.0


class Withheld(Exception):
    """A call was not sent; the text is the reason."""


class Access(NamedTuple):
    """How the server is called now. prefix: of each path. headers: their lines."""

    server: Server
    prefix: str
    headers: str


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
                path += f"?timeout={CALL_SECONDS:g}s"
            held = rest if why_not else None
            status, text = await self._ask(self._access, method, path, data, held)
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
        rest: Callable[[], bytes] | None,
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
                self._access = await asyncio.to_thread(_access_by, self._api)
                self._until = time.monotonic() + _ACCESS_SECONDS


def _access_by(api: KubeApi) -> Access | None:
    """The access that `api` has now, with files read again. None: only through a proxy.

    Raises OSError: a certificate cannot be read; ValueError: the token has an invalid character.
    """
    if api.has_proxy:
        return None
    settings = api.settings
    url = urlsplit(str(settings.host))
    address = str(url.hostname)
    # kubernetes 22.6 lacks both.
    trusted, name = (getattr(settings, each, None) for each in ("ca_cert_data", "tls_server_name"))
    tls = None
    if url.scheme == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = settings.verify_ssl and settings.assert_hostname is not False
        tls.verify_mode = ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE
        if settings.ssl_ca_cert or trusted:
            tls.load_verify_locations(settings.ssl_ca_cert, cadata=trusted)
        else:
            tls.load_default_certs()
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
    lines = {**api.headers(), "Content-Type": "application/json"}
    headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if "\n" in headers.replace("\r\n", ""):
        raise ValueError("the token has a line's end in it")
    server = Server(address, url.port or (443 if tls else 80), name or address, tls)
    return Access(server, api.prefix, f"Host: {url.netloc}\r\n{headers}")
