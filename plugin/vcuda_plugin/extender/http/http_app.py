"""HTTP as uvicorn hands it over, by path, without a framework's layers between.

Source: the ASGI specification, "HTTP & WebSocket ASGI Message Format".
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Mapping

    # Of the body; None: there was more of it than MOST_BODY_BYTES.
    Post = Callable[[bytes | None], Awaitable["Answer"]]
    # Of what follows the path, without the slash.
    Get = Callable[[str], "Answer"]
    Scope = Mapping[str, Any]
    Receive = Callable[[], Awaitable[Mapping[str, Any]]]
    Send = Callable[[Mapping[str, Any]], Awaitable[None]]

# A thousand nodes as whole objects; of five thousand the scheduler sends the names.
MOST_BODY_BYTES = 32 << 20
JSON, TEXT, PROMETHEUS = b"application/json", b"text/plain", b"text/plain; version=0.0.4"


class Answer(NamedTuple):
    body: bytes
    status: int = 200
    kind: bytes = JSON
    allow: bytes = b""  # the methods that would have been right


def line(text: str, status: int) -> Answer:
    return Answer(text.encode() + b"\n", status, TEXT)


class HttpApp:
    """posts: by path. gets: by path or, with a slash at its end, by how it begins.

    hosts: the names that a request's Host may have, its port aside; None: any.
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
                return  # nobody is there to be answered
        elif found and scope["method"] in ("GET", "HEAD"):
            answer = found[0](found[1])
        elif post or found:
            allowed = "POST" if post else "GET, HEAD"
            answer = line(f"{path} is for {allowed}", 405)._replace(allow=allowed.encode())
        else:
            answer = line(f"{path} is not served", 404)
        length = str(len(answer.body)).encode()
        headers = [(b"content-type", answer.kind), (b"content-length", length)]
        if answer.allow:
            headers.append((b"allow", answer.allow))
        await send({"type": "http.response.start", "status": answer.status, "headers": headers})
        await send({"type": "http.response.body", "body": answer.body})

    def _refusal(self, scope: Scope, has_body: bool) -> Answer | None:
        """What a web page from elsewhere cannot send: the extender's own name as Host, because the
        browser writes the page's, and JSON, because the browser asks first whether it may."""
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
    """None: it is too long; what came of it is not kept. Raises ConnectionError: it broke off."""
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
