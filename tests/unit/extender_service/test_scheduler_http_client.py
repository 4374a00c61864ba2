"""The HTTP client with servers that answer in pieces, wrongly, or not at all."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from vcuda_plugin.extender.follow.http_client import Connection, Server

ASKED = b"GET /x HTTP/1.1\r\nHost: x\r\n\r\n"
CONTINUE = b"HTTP/1.1 100 Continue\r\n\r\n"
OK = b"HTTP/1.1 200 OK\r\nContent-Length: 2\r\n\r\nok"


def talk(*raw_answer: bytes, then: Callable[[Server, Connection], Awaitable[Any]]) -> Any:
    """What `then` makes of a server that says one of `said` to each request, in single bytes."""

    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        for answer in raw_answer:
            if not await reader.read(1000):
                break
            size = 1 if len(answer) < 1000 else 1 << 16
            for number in range(0, len(answer), size):
                writer.write(answer[number : number + size])
                await writer.drain()
                await asyncio.sleep(0)
        writer.close()

    async def run() -> Any:
        listening = await asyncio.start_server(serve, "127.0.0.1", 0)
        server = Server("127.0.0.1", listening.sockets[0].getsockname()[1], "x", None)
        async with listening:
            connection = await Connection.to(server)
            try:
                return await then(server, connection)
            finally:
                connection.close()

    return asyncio.run(run())


async def ask(connection: Connection, seconds: float = 60) -> tuple[int, bytes]:
    return await connection.ask(ASKED, asyncio.get_running_loop().time() + seconds)


@pytest.mark.parametrize(
    ("raw_answer", "answer"),
    [
        (OK, (200, b"ok")),
        (CONTINUE + OK, (200, b"ok")),
        (
            b"HTTP/1.1 409 Conflict\r\nTransfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n\r\n",
            (409, b"{}"),
        ),
        (b"HTTP/1.1 204 No Content\r\n\r\n", (204, b"")),
    ],
    ids=["a length", "a word before", "chunks", "no body"],
)
def test_answer_is_read_in_pieces_of_any_size(raw_answer: bytes, answer: tuple[int, bytes]) -> None:
    async def twice(server: Server, connection: Connection) -> list[Any]:
        first, again = await ask(connection), connection.serves(server)
        return [first, again, await ask(connection), connection.serves(server._replace(name="y"))]

    assert talk(raw_answer, raw_answer, then=twice) == [answer, True, answer, False]


@pytest.mark.parametrize(
    ("answer", "why"),
    [
        (b"", "the server broke off"),
        (OK[:-1], "the server broke off"),
        (b"SSH-2.0-OpenSSH\r\n", "the server's answer cannot be parsed: "),
        (
            b"HTTP/1.1 101 x\r\nConnection: upgrade\r\nUpgrade: h2c\r\n\r\n",
            "the server's answer cannot be parsed",
        ),
        (
            b"HTTP/1.1 200 OK\r\nContent-Length: 40000000\r\n\r\n" + bytes(40_000_000),
            "the server's answer cannot be parsed: ",
        ),
    ],
    ids=["nothing", "half of it", "no HTTP", "another protocol", "40 MB"],
)
def test_incomplete_answer_is_an_error_and_ends_the_connection(answer: bytes, why: str) -> None:
    async def once(server: Server, connection: Connection) -> bool:
        with pytest.raises(ConnectionError, match=why):
            await ask(connection)
        return connection.serves(server)

    assert talk(answer, then=once) is False


def test_silent_server_is_awaited_for_a_limited_time() -> None:
    async def once(server: Server, connection: Connection) -> bool:
        with pytest.raises(asyncio.TimeoutError):
            await ask(connection, 0.1)
        return connection.serves(server)

    assert talk(CONTINUE, OK, then=once) is False


@pytest.mark.parametrize(
    ("answer", "asked_for", "goes_on"),
    [((CONTINUE, OK), 1, True), ((OK,), 0, False)],
    ids=["asked for", "answered without"],
)
def test_the_rest_of_a_request_is_sent_when_the_server_asks_for_it(
    answer: tuple[bytes, ...], asked_for: int, goes_on: bool
) -> None:
    """A server that did not ask for the body would read it as the next request."""
    given = []

    def rest() -> bytes:
        given.append(b"rest")
        return b"rest"

    async def once(server: Server, connection: Connection) -> tuple[Any, bool]:
        until = asyncio.get_running_loop().time() + 60
        return await connection.ask(ASKED, until, rest), connection.serves(server)

    assert talk(*answer, then=once) == ((200, b"ok"), goes_on)
    assert len(given) == asked_for


def test_a_request_with_a_withheld_body_ends_without_it() -> None:
    def rest() -> bytes:
        raise KeyError("thought better of it")

    async def once(server: Server, connection: Connection) -> bool:
        with pytest.raises(KeyError, match="thought better of it"):
            await connection.ask(ASKED, asyncio.get_running_loop().time() + 60, rest)
        return connection.serves(server)

    assert talk(CONTINUE, OK, then=once) is False


@pytest.mark.parametrize(
    "raw_answer",
    [OK + OK, OK.replace(b"OK\r", b"OK\r\nConnection: close\r")],
    ids=["more", "the end"],
)
def test_connection_with_extra_or_no_data_is_not_reused(raw_answer: bytes) -> None:
    """The extra answer would be read as that of the next request."""

    async def once(server: Server, connection: Connection) -> tuple[Any, bool]:
        answer = await ask(connection)
        deadline = asyncio.get_running_loop().time() + 60
        while connection.serves(server) and asyncio.get_running_loop().time() < deadline:
            await asyncio.sleep(0.01)
        return answer, connection.serves(server)

    assert talk(raw_answer, OK, then=once) == ((200, b"ok"), False)
