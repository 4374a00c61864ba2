"""Route HTTP requests from uvicorn by path, without a framework.

Source: the ASGI specification, "HTTP & WebSocket ASGI Message Format".
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from typing import Any, NamedTuple

Post = Callable[[bytes | None], Awaitable["Answer"]]
Get = Callable[[str], "Answer"]
Scope = Mapping[str, Any]
Receive = Callable[[], Awaitable[Mapping[str, Any]]]
Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# Fits a thousand nodes as whole objects. For more, nodeCacheCapable makes the scheduler send names.
MOST_BODY_BYTES = 32 << 20
JSON, TEXT, PROMETHEUS = b"application/json", b"text/plain", b"text/plain; version=0.0.4"


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    kind: bytes = JSON
    headers: tuple[tuple[bytes, bytes], ...] = ()  # beside those of the body


def line(text: str, status: int, headers: tuple[tuple[bytes, bytes], ...] = ()) -> Answer:
    return Answer(text.encode() + b"\n", status, TEXT, headers)


def wrong_method(path: str, allowed: str) -> Answer:
    """allowed: the methods that the path accepts."""
    return line(f"{path} is for {allowed}", 405, ((b"allow", allowed.encode()),))


async def send_answer(send: Send, answer: Answer) -> None:
    length = str(len(answer.body)).encode()
    headers = [(b"content-type", answer.kind), (b"content-length", length), *answer.headers]
    await send({"type": "http.response.start", "status": answer.status, "headers": headers})
    await send({"type": "http.response.body", "body": answer.body})


class HttpApp:
    """An ASGI application.

    posts: by path. gets: by path or, for a path that ends with a slash, by prefix.
    hosts: the allowed values of a request's Host, without its port; None: any.
    """

    hosts: frozenset[bytes] | None = None

    def __init__(self, posts: Mapping[str, Post], gets: Mapping[str, Get]) -> None:
        self._posts, self._gets = posts, gets

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        path = scope["path"]
        post, found = self._posts.get(path), self._get(path)
        if refused := self._refusal(scope, bool(post)):
            answer = refused
        elif post and scope["method"] == "POST":
            try:
                answer = await post(await _body(scope, receive))
            except ConnectionError:
                return  # the client has disconnected
        elif found and scope["method"] in ("GET", "HEAD"):
            answer = found[0](found[1])
        elif post or found:
            allowed = "POST" if post else "GET, HEAD"
            answer = wrong_method(path, allowed)
        else:
            answer = line(f"{path} is not served", 404)
        await send_answer(send, answer)

    def _refusal(self, scope: Scope, has_body: bool) -> Answer | None:
        """Refuse requests that a web page of another site could send.

        Such a page cannot send the extender's own name as Host, because the browser writes the
        page's name. It cannot send JSON either, because the browser first requests permission.
        """
        hosts = [value for name, value in scope["headers"] if name == b"host"]
        if self.hosts is not None and (
            len(hosts) != 1 or _without_port(hosts[0]) not in self.hosts
        ):
            return line("Host: is not a name of this extender; see --allowed-host", 403)
        if has_body and scope["method"] == "POST":
            kinds = [value for name, value in scope["headers"] if name == b"content-type"]
            if [kind.partition(b";")[0].strip().lower() for kind in kinds] != [JSON]:
                return line("Content-Type: is not application/json", 415)
        return None

    def _get(self, path: str) -> tuple[Get, str] | None:
        if path in self._gets:
            return self._gets[path], ""
        front, slash, rest = path.rpartition("/")
        get = self._gets.get(front + slash)
        return (get, rest) if get and rest else None


def _without_port(host: bytes) -> bytes:
    name, colon, port = host.lower().rpartition(b":")
    return name if colon and port.isdigit() else host.lower()


async def _body(scope: Scope, receive: Receive) -> bytes | None:
    """Return the body; None: it is too long. Raises ConnectionError: the client disconnected."""
    for name, value in scope["headers"]:
        if name == b"content-length" and int(value) > MOST_BODY_BYTES:
            return None
    pieces, size = [], 0
    while True:
        message = await receive()
        if message["type"] != "http.request":
            raise ConnectionError
        piece = message.get("body", b"")
        pieces.append(piece)
        size += len(piece)
        if size > MOST_BODY_BYTES:
            return None
        if not message.get("more_body"):
            return b"".join(pieces)
