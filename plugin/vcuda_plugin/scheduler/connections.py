"""How many connections the extender holds at once, and how long one may take to say who it is.

asyncio's own servers take every connection and hand it to uvicorn after its TLS handshake, within a
minute: until then, silent clients hold all descriptors that the process may have.
"""

from __future__ import annotations

import asyncio
import logging
import socket
from typing import TYPE_CHECKING, Any

import uvloop

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

MOST_CONNECTIONS = 600
HANDSHAKE_SECONDS = 5.0
_ACCEPTED_AT_ONCE = 64
_AGAIN_SECONDS = 0.1

_log = logging.getLogger(__name__)


class Loop(uvloop.Loop):
    """Whose servers are bounded."""

    async def create_server(  # type: ignore[override]
        self,
        protocol_factory: Callable[[], asyncio.BaseProtocol],
        *,
        sock: socket.socket,
        ssl: ssl.SSLContext | None = None,
        backlog: int = 100,
    ) -> Listener:
        """As uvicorn calls it, with a socket that listens already."""
        return Listener(self, protocol_factory, sock, ssl)


class Listener:
    """What uvicorn closes as it would close a server of asyncio's."""

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
        self.sockets = [listening]
        listening.setblocking(False)
        loop.add_reader(listening, self._accept)

    def close(self) -> None:
        if self._again:
            self._again.cancel()
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
            accepted.setblocking(False)
            client = _Client(accepted)
            self._open[client] = None
            client.task = self._loop.create_task(self._serve(client))

    def _make_room(self) -> bool:
        """For one more, if need be by closing who has been silent longest."""
        if len(self._open) < MOST_CONNECTIONS:
            return True
        for client in list(self._open):
            if client.transport and client.transport.is_closing():
                del self._open[client]
        if len(self._open) < MOST_CONNECTIONS:
            return True
        for silent in (_Client.has_asked_nothing, _Client.is_idle):
            for client in self._open:
                if silent(client):
                    del self._open[client]
                    client.end()
                    return True
        return False

    async def _serve(self, client: _Client) -> None:
        def make() -> asyncio.BaseProtocol:
            client.protocol = made = self._factory()  # uvloop answers with TLS's own protocol
            return made

        seconds = HANDSHAKE_SECONDS if self._tls else None
        try:
            client.transport, _ = await self._loop.connect_accepted_socket(
                make, client.socket, ssl=self._tls, ssl_handshake_timeout=seconds
            )
        except (OSError, asyncio.TimeoutError):  # ssl's errors are of the former
            self._open.pop(client, None)


class _Client:
    """task: that of its handshake. transport: from then on. protocol: uvicorn's."""

    task: asyncio.Task[None]
    transport: Any = None
    protocol: Any = None

    def __init__(self, accepted: socket.socket) -> None:
        self.socket = accepted

    def has_asked_nothing(self) -> bool:
        """No handshake yet, or no whole header."""
        return getattr(self.protocol, "cycle", None) is None

    def is_idle(self) -> bool:
        return bool(self.protocol.cycle.response_complete)

    def end(self) -> None:
        """Closes the connection; the transport then sees its end, and closes the socket."""
        try:
            self.socket.shutdown(socket.SHUT_RDWR)
        except OSError:
            pass  # it has ended by itself
