"""An HTTP/1.1 server for GET and HEAD that bounds what a client can occupy.

h11 implements the protocol. This module owns the sockets and enforces three limits: open
connections, large answers in memory, and the time for each step of an exchange.
"""

from __future__ import annotations

import asyncio
import email.utils
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import NamedTuple

import h11

MOST_CONNECTIONS = 600
# At most so many large answers are in memory at once, each until its client has read it. Answers
# of up to SMALL_BYTES need no such place: health probes are answered even if other clients stall.
MOST_ANSWERS = 32
SMALL_BYTES = 4096
MOST_HEADER_BYTES = 16 << 10
# Limit for a complete request to arrive, and for a client to read its answer.
STEP_SECONDS = 5.0
IDLE_SECONDS = 75.0

_log = logging.getLogger(__name__)


class Request(NamedTuple):
    """A parsed request.

    path: without the query. headers: names in lower case; the last value of a repeated name.
    """

    path: str
    headers: Mapping[str, str]


class Response(NamedTuple):
    status: int
    body: bytes
    headers: tuple[tuple[str, str], ...] = ()


class Server:
    """Serves what `answer` returns; its exceptions are logged and answered with a plain 500."""

    def __init__(self, answer: Callable[[Request], Awaitable[Response]]) -> None:
        self.answer = answer
        self.answers = asyncio.Semaphore(MOST_ANSWERS)
        self._waiting: dict[Connection, None] = {}  # in order of waiting time, longest first
        self._open = 0

    async def listen(self, host: str, port: int) -> asyncio.Server:
        """Listen. Raises OSError: the address is in use or not one of this host."""
        loop = asyncio.get_running_loop()
        return await loop.create_server(lambda: Connection(self), host, port, backlog=512)

    def enter(self) -> bool:
        """Count one more connection; if there are too many, close the one that waits longest.

        Returns False if none is waiting: the new connection must then be closed.
        """
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

    def waits(self, connection: Connection, *, is_waiting: bool) -> None:
        self._waiting.pop(connection, None)
        if is_waiting:
            self._waiting[connection] = None


class Connection(asyncio.Protocol):
    """One client connection: reads the next request only after answering the last."""

    def __init__(self, server: Server) -> None:
        self._server = server
        self._http = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEADER_BYTES)
        self._transport: asyncio.Transport
        self._deadline: asyncio.TimerHandle | None = None
        self._answering: asyncio.Task[None] | None = None
        self._written = asyncio.Event()
        self._written.set()
        self._entered = self._begun = self._without_body = False

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        self._transport = transport
        # resume_writing is then called once everything is written out.
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
        self._written.set()
        if self._answering:
            self._answering.cancel()

    def abort(self) -> None:
        """Close at once, discarding what is not sent."""
        self._transport.abort()
        if self._entered:
            self._server.leave(self)
            self._entered = False

    def pause_writing(self) -> None:
        self._written.clear()

    def resume_writing(self) -> None:
        self._written.set()

    def data_received(self, data: bytes) -> None:
        if not self._begun:
            self._begun = True
            self._end_within(STEP_SECONDS)
        self._http.receive_data(data)
        self._next()

    def eof_received(self) -> bool:
        self._http.receive_data(b"")
        self._next()
        return True  # a client may close its sending side and still read the answer

    def _next(self) -> None:
        """Begin to answer if a complete header has arrived."""
        if self._answering:
            return
        try:
            event = self._http.next_event()
        except h11.RemoteProtocolError as error:
            self._start(plain(error.error_status_hint, "not a request that is understood"))
            return
        if isinstance(event, h11.Request):
            self._without_body = event.method == b"HEAD"
            self._start(_of(event))
        elif isinstance(event, h11.ConnectionClosed):
            self._transport.close()

    def _start(self, what: Request | Response) -> None:
        self._server.waits(self, is_waiting=False)
        self._end_within(None)
        self._transport.pause_reading()
        self._answering = asyncio.ensure_future(self._answer(what))

    async def _answer(self, what: Request | Response) -> None:
        if isinstance(what, Request):
            try:
                what = await self._server.answer(what)
            except Exception:
                _log.exception("http: no answer")
                what = plain(500, "an error of the agent: see its log")
        if len(what.body) <= SMALL_BYTES:
            await self._send(what)
        else:
            async with self._server.answers:
                await self._send(what)
        self._answering = None
        self._after()

    async def _send(self, response: Response) -> None:
        """Send the response and wait until it is written out."""
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
        await self._written.wait()

    def _write(self, data: bytes | None) -> None:
        if data and not self._transport.is_closing():
            self._transport.write(data)

    def _after(self) -> None:
        """Wait for the next request if the last one is complete, else close the connection."""
        if self._transport.is_closing():
            return
        try:
            complete = isinstance(self._http.next_event(), h11.EndOfMessage)
            if complete and self._http.our_state is h11.DONE:
                self._http.start_next_cycle()
                self._transport.resume_reading()
                self._begun = False
                self._wait(IDLE_SECONDS)
                self._next()  # it may have arrived already
                return
        except h11.ProtocolError:
            pass
        self._transport.close()

    def _wait(self, seconds: float) -> None:
        self._server.waits(self, is_waiting=True)
        self._end_within(seconds)

    def _end_within(self, seconds: float | None) -> None:
        if self._deadline:
            self._deadline.cancel()
        loop = asyncio.get_running_loop()
        self._deadline = None if seconds is None else loop.call_later(seconds, self.abort)


def _of(event: h11.Request) -> Request | Response:
    if event.method not in (b"GET", b"HEAD"):
        return plain(405, "GET and HEAD only", ("Allow", "GET, HEAD"))
    path = event.target.partition(b"?")[0].decode("latin-1")
    headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in event.headers}
    return Request(path, headers)


def plain(status: int, text: str, *headers: tuple[str, str]) -> Response:
    """A response of one line of text."""
    kind = ("Content-Type", "text/plain; charset=utf-8")
    return Response(status, f"{text}\n".encode(), (kind, *headers))
