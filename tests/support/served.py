"""A server on a loopback address with fixed answers."""

from __future__ import annotations

import contextlib
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, HTTPServer


@contextlib.contextmanager
def serving(body: bytes, status: int = 200, **paths: bytes) -> Iterator[str]:
    """HOST:PORT of the server, until the block ends. paths: other answers than `body`."""

    class Answer(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            answer = paths.get(self.path[1:], body)
            self.send_response(status)
            self.send_header("Content-Length", str(len(answer)))
            self.end_headers()
            self.wfile.write(answer)

        def log_message(self, *_: object) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answer)
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
