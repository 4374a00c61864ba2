"""Bound the extender's connections: their number, and the time of a TLS handshake and a request.

asyncio's own servers take every connection and hand it to uvicorn after its TLS handshake, within a
minute: until then, silent clients hold all descriptors that the process may have. uvicorn waits
without end for a request's body, and for a client that does not read its answer.

Each second the listener checks all connections. It closes a connection when its request has no
answer REQUEST_SECONDS after it was first seen. When MOST_CONNECTIONS are open, the next one takes
the place of, in this order: the oldest without a request, the oldest with an answered request, and
the one that has been sending its request's body longest.
"""

from __future__ import annotations

import asyncio
import logging
import socket
import ssl
from collections.abc import Callable
from typing import Any

import uvloop

MOST_CONNECTIONS = 600
HANDSHAKE_SECONDS = 5.0
# Longer than a bind takes when its calls to the API server time out.
REQUEST_SECONDS = 30
_ACCEPTED_AT_ONCE = 64
_AGAIN_SECONDS = 0.1

_log = logging.getLogger(__name__)


class Loop(uvloop.Loop):
    """uvloop's loop with a bounded server."""

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        sock: socket.socket,
        ssl: ssl.SSLContext | None = None,
        backlog: int = 100,
    ) -> Listener:
        """Return a `Listener`. uvicorn passes a socket that is listening already."""
        return Listener(self, protocol_factory, sock, ssl)


class Listener:
    """Accept connections; uvicorn closes it like an asyncio server."""

    def __init__(
        self,
        loop: Loop,
        factory: Callable[[], asyncio.BaseProtocol],
        listening: socket.socket,
        tls: ssl.SSLContext | None,
    ) -> None:
        self._loop, self._factory, self._tls = loop, factory, tls
        self._listening = listening
        self._open: dict[_Client, None] = {}  # the oldest at the front
        self._again: asyncio.TimerHandle | None = None
        self._next_check: asyncio.TimerHandle | None = None  # while connections are open
        self.sockets = [listening]
        listening.settimeout(0)
        loop.add_reader(listening, self._accept)

    def close(self) -> None:
        for timer in (self._again, self._next_check):
            if timer:
                timer.cancel()
        self._loop.remove_reader(self._listening)
        for client in list(self._open):
            if not client.transport:
                client.end()

    async def wait_closed(self) -> None:
        pass

    def _accept(self) -> None:
        for _ in range(_ACCEPTED_AT_ONCE):
            try:
                accepted, _ = self._listening.accept()
            except BlockingIOError:
                return
            except ConnectionError:
                continue
            except OSError as error:  # no descriptor or no memory; accept() later, not in a loop
                _log.warning("cannot take a connection: %s", error)
                self._loop.remove_reader(self._listening)
                again = (_AGAIN_SECONDS, self._loop.add_reader, self._listening, self._accept)
                self._again = self._loop.call_later(*again)
                return
            if not self._make_room():
                accepted.close()
                continue
            accepted.settimeout(0)
            client = _Client(accepted)
            self._open[client] = None
            if not self._next_check:
                self._next_check = self._loop.call_later(1, self._check)
            client.task = self._loop.create_task(self._serve(client))

    def _check(self) -> None:
        self._drop_closed()
        for client in list(self._open):
            if client.count_second() >= REQUEST_SECONDS:
                self._end(client)
        self._next_check = self._loop.call_later(1, self._check) if self._open else None

    def _drop_closed(self) -> None:
        for client in list(self._open):
            if client.transport and client.transport.is_closing():
                del self._open[client]

    def _make_room(self) -> bool:
        """Return whether one more connection may be taken; close another one if needed."""
        if len(self._open) >= MOST_CONNECTIONS:
            self._drop_closed()
        if len(self._open) < MOST_CONNECTIONS:
            return True
        for silent in (_Client.has_asked_nothing, _Client.is_idle):
            for client in self._open:
                if silent(client):
                    self._end(client)
                    return True
        sending = [client for client in self._open if client.is_sending()]
        if not sending:
            return False
        self._end(max(sending, key=lambda client: client.seconds))
        return True

    def _end(self, client: _Client) -> None:
        del self._open[client]
        client.end()

    async def _serve(self, client: _Client) -> None:
        def make() -> asyncio.BaseProtocol:
            client.protocol = made = self._factory()  # uvloop answers with TLS's own protocol
            return made

        seconds = HANDSHAKE_SECONDS if self._tls else None
        try:
            client.transport, _ = await self._loop.connect_accepted_socket(
                make, client.socket, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.TimeoutError):  # ssl's errors are OSErrors
            self._open.pop(client, None)


class _Client:
    """A connection. task: its handshake. transport: set after the handshake. protocol: uvicorn's.

    seconds: for how many checks its present request has had no answer.
    """

    task: asyncio.Task[None]
    transport: Any = None
    protocol: Any = None
    seconds = 0
    _request: Any = None

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted

    def has_asked_nothing(self) -> bool:
        """Return whether the handshake or the first request's header is incomplete."""
        return getattr(self.protocol, "cycle", None) is None

    def is_idle(self) -> bool:
        return bool(self.protocol.cycle.response_complete)

    def is_sending(self) -> bool:
        """Return whether the request's header is complete and its body is not."""
        return bool(self.protocol.cycle.more_body)

    def count_second(self) -> int:
        """Count one check. Return the new value of seconds."""
        request = getattr(self.protocol, "cycle", None)
        if request is not self._request or (request and request.response_complete):
            self._request, self.seconds = request, 0
        else:
            self.seconds += 1
        return self.seconds

    def end(self) -> None:
        """Close the connection. During the handshake, shut down the socket to end the transport."""
        if self.transport:
            self.transport.abort()
            return
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # the client has closed it already
