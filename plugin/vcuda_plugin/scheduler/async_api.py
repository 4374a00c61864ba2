"""Single calls of the API server on the event loop: no thread waits for an answer.

A thread for each call, woken twice, takes as long as all else that a binding needs. What to reach
and whom to trust is `Api`'s.
"""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Any

from . import json_bytes
from .api import CALL_SECONDS, CONNECTIONS, Unreachable
from .http_client import Connection

if TYPE_CHECKING:
    from .api import Access, Api

# A token or a certificate that is renewed is read again after so long.
_ACCESS_SECONDS = 60.0


class AsyncApi:
    """For calls within one event loop."""

    def __init__(self, api: Api) -> None:
        self._api = api
        self._access: Access | None = None
        self._until = 0.0
        self._renewing, self._turns = asyncio.Lock(), asyncio.Semaphore(CONNECTIONS)
        self._idle: list[Connection] = []

    async def call(self, method: str, path: str, body: Any = None) -> tuple[int, Any]:
        """The status and the object that came with it. Raises Unreachable."""
        data = b"" if body is None else json_bytes.dumps(body)
        try:
            if self._until < time.monotonic():
                await self._renew()
            if self._access is None:
                return await asyncio.to_thread(self._api.call, method, path, body)
            answer = self._ask(self._access, method, path, data)
            status, said = await asyncio.wait_for(answer, CALL_SECONDS)
            return status, json_bytes.loads(said)
        except asyncio.TimeoutError:
            reason = f"{method} {path}: no answer within {CALL_SECONDS:g} s"
            raise Unreachable(reason) from None
        except (OSError, ValueError) as error:
            raise Unreachable(f"{method} {path}: {error}") from error

    async def _ask(self, access: Access, method: str, path: str, data: bytes) -> tuple[int, bytes]:
        request = (
            f"{method} {access.prefix}{path} HTTP/1.1\r\n"
            f"{access.headers}Content-Length: {len(data)}\r\n\r\n"
        )
        async with self._turns:
            while self._idle and not self._idle[-1].open:
                self._idle.pop()
            connection = self._idle.pop() if self._idle else await Connection.to(access.server)
            try:
                answer = await connection.ask(request.encode("latin-1") + data)
            except BaseException:
                connection.close()  # what it answers late is no other call's
                raise
            if access is self._access:
                self._idle.append(connection)
            else:
                connection.close()
            return answer

    async def _renew(self) -> None:
        """In a thread: files are read, and a program may be asked for a token."""
        async with self._renewing:
            if self._until < time.monotonic():
                self._access = await asyncio.to_thread(self._api.access)
                self._until = time.monotonic() + _ACCESS_SECONDS
                for connection in self._idle:
                    connection.close()
                self._idle.clear()
