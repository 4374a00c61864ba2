"""HTTP/1.1 for whoever reads figures, with bounds on what any client can hold: GET and HEAD only.

h11 knows the protocol; here are the socket, the time that a step may take, and how many may wait.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
from typing import TYPE_CHECKING, NamedTuple

import h11

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

MOST_CONNECTIONS = 600
# So many large answers lie in memory at once, each until its client has taken it. Small ones wait
# for nobody: a probe is answered whoever else is deaf.
MOST_ANSWERS = 32
SMALL_BYTES = 4096
MOST_HEADER_BYTES = 16 << 10
# For a request to arrive whole, and for an answer to be taken.
STEP_SECONDS = 5.0
IDLE_SECONDS = 75.0

_log = logging.getLogger(__name__)


class Request(NamedTuple):
    """path: without the query. headers: names in small letters; of equal ones the last."""

    path: str
    headers: Mapping[str, str]


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Server:
    """Answers with what `answer` says; what it raises is a 500 that tells nothing, and logged."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.answer = answer
        self.answers = asyncio.Semaphore(MOST_ANSWERS)
        self._waiting: dict[Connection, None] = {}  # the longest at the front
        self._open = 0

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Raises OSError: the address is taken, or none of this host."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Connection(self), host, port, backlog=512)

    def enter(self) -> bool:
        """Room for one more, if need be by closing who has kept us waiting longest."""
        if self._open >= MOST_CONNECTIONS:
            longest = next(iter(self._waiting), None)
            if longest is None:
                return False
            longest.abort()
        self._open += 1
        return True

    def leave(self, connection: Connection) -> None:
        self._open -= 1
        self._waiting.pop(connection, None)

    def waits(self, connection: Connection, is_waiting: bool) -> None:
        self._waiting.pop(connection, None)
        if is_waiting:
            self._waiting[connection] = None


class Connection(asyncio.Protocol):
    """One request after the other: nothing is read while one is answered."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self._taken = asyncio.Event()
        self._taken.set()
        self._entered = self._begun = self._without_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # resume_writing then says that the client took everything.
        transport.set_write_buffer_limits(high=0)
        self._entered = self._server.enter()
        if self._entered:
            self._begun = True
            self._wait(STEP_SECONDS)
        else:
            transport.abort()

    def connection_lost(self, error: Exception | None) -> None:
        if self._entered:
            self._server.leave(self)
        self._entered = False
        self._end_within(None)
        self._taken.set()
        if self._answering:
            self._answering.cancel()

    def abort(self) -> None:
        """At once: what waits on this connection is not told."""
        self._transport.abort()
        if self._entered:
            self._server.leave(self)
            self._entered = False

    def pause_writing(self) -> None:
        self._taken.clear()

    def resume_writing(self) -> None:
        self._taken.set()

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._end_within(STEP_SECONDS)
        self._http.receive_data(data)
        self._next()

    def eof_received(self) -> bool:
        self._http.receive_data(b"")
        self._next()
        return True  # who says no more may still be told

    def _next(self) -> None:
        """Begin to answer if a whole header has come."""
        if self._answering:
            return
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._start(_plain(error.error_status_hint, "not a request that is understood"))
            return
        if isinstance(event, h11.Request):
            self._without_body = event.method == b"HEAD"
            self._start(_of(event))
        elif isinstance(event, h11.ConnectionClosed):
            self._transport.close()

    def _start(self, what: Request | Response) -> None:
        self._server.waits(self, False)
        self._end_within(None)
        self._transport.pause_reading()
        self._answering = asyncio.ensure_future(self._answer(what))

    async def _answer(self, what: Request | Response) -> None:
        if isinstance(what, Request):
            try:
                what = await self._server.answer(what)
            except Exception:
                _log.exception("no answer")
                what = _plain(500, "an error of the agent: see its log")
        if len(what.body) <= SMALL_BYTES:
            await self._send(what)
        else:
            async with self._server.answers:
                await self._send(what)
        self._answering = None
        self._after()

    async def _send(self, response: Response) -> None:
        """Until the client has taken it."""
        self._end_within(STEP_SECONDS)
        headers = [
            ("Date", email.utils.formatdate(usegmt=True)),
            ("Content-Length", str(len(response.body))),
            *response.headers,
        ]
        if self._http.our_state in (h11.IDLE, h11.SEND_RESPONSE):
            head = h11.Response(status_code=response.status, headers=headers)
            self._write(self._http.send(head))
            if not self._without_body:
                self._write(self._http.send(h11.Data(data=response.body)))
            self._write(self._http.send(h11.EndOfMessage()))
        await self._taken.wait()

    def _write(self, data: bytes | None) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _after(self) -> None:
        """The next request of a client that sent a whole one and may go on."""
        if self._transport.is_closing():
            return
        try:
            whole = isinstance(self._http.next_event(), h11.EndOfMessage)
            if whole and self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
                self._transport.resume_reading()
                self._begun = False
                self._wait(IDLE_SECONDS)
                self._next()  # it may have come already
                return
        except h11.ProtocolError:
            pass
        self._transport.close()

    def _wait(self, seconds: float) -> None:
        self._server.waits(self, True)
        self._end_within(seconds)

    def _end_within(self, seconds: float | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else loop.call_later(seconds, self.abort)


def _of(event: h11.Request) -> Request | Response:
    if event.method not in (b"GET", b"HEAD"):
        return _plain(405, "GET and HEAD only", ("Allow", "GET, HEAD"))
    path = event.target.partition(b"?")[0].decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    return Request(path, headers)


def _plain(status: int, text: str, *headers: tuple[str, str]) -> Response:
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return Response(status, f"{text}\n".encode(), (kind, *headers))
