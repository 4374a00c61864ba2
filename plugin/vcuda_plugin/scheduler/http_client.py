"""HTTP to one server on the event loop: connections that stay, one request at a time on each.

httptools reads the answers. A general client takes three times as long for a call as this does.
"""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING, NamedTuple, cast

import httptools

if TYPE_CHECKING:
    import ssl

# An object is at most 1.5 MiB in etcd.
_MOST_ANSWER_BYTES = 32 << 20


class Server(NamedTuple):
    """name: what its certificate says. tls: None where it is not spoken."""

    address: str
    port: int
    name: str
    tls: ssl.SSLContext | None


class Connection(asyncio.Protocol):
    """For `ask`, and for `ask` again once that has answered and while `open`."""

    open = False
    _transport: asyncio.Transport
    _answered: asyncio.Future[tuple[int, bytes]] | None = None

    def __init__(self) -> None:
        self._parser = httptools.HttpResponseParser(self)
        self._pieces: list[bytes] = []
        self._size = 0

    @classmethod
    async def to(cls, server: Server) -> Connection:
        """Raises OSError: there is none, or it is not who it should be."""
        name = server.name if server.tls else None
        loop = asyncio.get_running_loop()
        _, connection = await loop.create_connection(
            cls, server.address, server.port, ssl=server.tls, server_hostname=name
        )
        return connection

    def ask(self, request: bytes) -> asyncio.Future[tuple[int, bytes]]:
        """The status and the body. It raises ConnectionError: it broke off, or it is no HTTP."""
        self._answered = asyncio.get_running_loop().create_future()
        self._transport.write(request)
        return self._answered

    def close(self) -> None:
        self.open = False
        self._transport.close()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.open, self._transport = True, cast("asyncio.Transport", transport)

    def connection_lost(self, error: Exception | None) -> None:
        self.open = False
        self._end(ConnectionError(error or "the server broke off"))

    def data_received(self, data: bytes) -> None:
        try:
            self._parser.feed_data(data)
        except (httptools.HttpParserError, httptools.HttpParserUpgrade) as error:
            self.close()
            self._end(ConnectionError(f"what the server says is no answer: {error}"))

    def on_body(self, piece: bytes) -> None:
        self._pieces.append(piece)
        self._size += len(piece)
        if self._size > _MOST_ANSWER_BYTES:
            raise ConnectionError(f"more than {_MOST_ANSWER_BYTES} bytes")

    def on_message_complete(self) -> None:
        status, body = self._parser.get_status_code(), b"".join(self._pieces)
        self._pieces, self._size = [], 0
        if status < 200:
            return  # the answer is still to come
        if not self._parser.should_keep_alive():
            self.close()
        self._end((status, body))

    def _end(self, answer: tuple[int, bytes] | ConnectionError) -> None:
        answered, self._answered = self._answered, None
        if answered is None:
            self.close()  # nobody asked: what comes next would be taken for an answer
        elif answered.done():
            pass  # who asked waits no longer
        elif isinstance(answer, ConnectionError):
            answered.set_exception(answer)
        else:
            answered.set_result(answer)
