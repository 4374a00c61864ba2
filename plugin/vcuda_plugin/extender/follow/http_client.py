"""HTTP to one server on the event loop: persistent connections, one request at a time on each.

httptools parses the answers. A general client takes three times as long for a call.
"""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import NamedTuple, cast

import httptools

# An object is at most 1.5 MiB in etcd.
_MOST_ANSWER_BYTES = 32 << 20


class Server(NamedTuple):
    """name: in its certificate. tls: None without TLS."""

    address: str
    port: int
    name: str
    tls: ssl.SSLContext | None


class Connection(asyncio.Protocol):
    """A connection for one `ask` after the other while `serves` is true."""

    _transport: asyncio.Transport
    _answered: asyncio.Future[tuple[int, bytes]] | None = None
    _rest: Callable[[], bytes] | None = None

    def __init__(self, server: Server) -> None:
        self._server: Server | None = server
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = 0

    @classmethod
    async def to(cls, server: Server) -> Connection:
        """Raises OSError: no connection, or the wrong certificate."""
        name = server.name if server.tls else None
        _, connection = await asyncio.get_running_loop().create_connection(
            lambda: cls(server), server.address, server.port, ssl=server.tls, server_hostname=name
        )
        return connection

    def serves(self, server: Server) -> bool:
        """Whether the connection can be used, with the present certificates and trust."""
        return self._server is server

    async def ask(
        self, request: bytes, until: float, rest: Callable[[], bytes] | None = None
    ) -> tuple[int, bytes]:
        """The status and the body. until: by the loop's clock. rest: what belongs to the request
        too, asked for when the server waits for it (RFC 9110, 10.1.1, 100-continue), or never.

        Raises TimeoutError; ConnectionError: it broke off, or it is no HTTP; what `rest` raises.
        """
        loop = asyncio.get_running_loop()
        answered: asyncio.Future[tuple[int, bytes]] = loop.create_future()
        self._answered, self._rest = answered, rest
        self._transport.write(request)
        # asyncio.wait_for creates a task, which takes as long as the rest.
        timer = loop.call_at(until, self._end, asyncio.TimeoutError())
        try:
            return await answered
        except BaseException:
            self.close()  # a late answer is not that of the next request
            raise
        finally:
            timer.cancel()

    def close(self) -> None:
        self._server = None
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self._server = None
        self._end(ConnectionError(error or "the server broke off"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self._end(ConnectionError(f"the server's answer cannot be parsed: {error}"))

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MOST_ANSWER_BYTES:
            raise ConnectionError(f"more than {_MOST_ANSWER_BYTES} bytes")

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if status < 200:
            if status == 100:
                self._send_rest()
            return  # the answer has not begun
        # Without the rest the server cannot find the beginning of the next request.
        if self._rest or not self._parser.should_keep_alive():
            self.close()
        self._end((status, body))

    def _send_rest(self) -> None:
        rest, self._rest = self._rest, None
        try:
            if rest:
                self._transport.write(rest())
        except Exception as error:
            self._end(error)

    def _end(self, answer: tuple[int, bytes] | Exception) -> None:
        answered, self._answered = self._answered, None
        if answered is None or answered.done():
            self.close()  # unexpected data: it would be taken for the next answer
        elif isinstance(answer, Exception):
            answered.set_exception(answer)
        else:
            answered.set_result(answer)
