"""A registry that images are pushed to, as far as that asks it.

Source: Open Container Initiative, Distribution Specification 1.1, "Push", "Mounting a blob from
another repository".
"""

from __future__ import annotations

import contextlib
import hashlib
import json
import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

PORT = 80


class Registry:
    """images: their manifests, by NAME:TAG. It takes only what is whole."""

    def __init__(self) -> None:
        self.images: dict[str, bytes] = {}
        self._sizes: dict[str, int] = {}

    @contextlib.contextmanager
    def listening(self) -> Iterator[None]:
        """On loopback, of the network that the calling thread is in."""
        registry = self

        class Handler(BaseHTTPRequestHandler):
            protocol_version = "HTTP/1.1"

            def answer(self) -> None:
                code, headers = registry.answer(self.command, self.path, self.body())
                self.send_response(code)
                for name, value in {"Content-Length": "0", **headers}.items():
                    self.send_header(name, value)
                self.end_headers()

            def body(self) -> bytes:
                if self.headers.get("Transfer-Encoding") != "chunked":
                    return self.rfile.read(int(self.headers.get("Content-Length") or 0))
                parts = []
                while size := int(self.rfile.readline(), 16):
                    parts.append(self.rfile.read(size))
                    self.rfile.readline()
                self.rfile.readline()
                return b"".join(parts)

            do_GET = do_HEAD = do_POST = do_PUT = do_PATCH = answer

            def log_message(self, *_: object) -> None:
                pass

        server = ThreadingHTTPServer(("127.0.0.1", PORT), Handler)
        thread = threading.Thread(target=server.serve_forever)
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()
            server.server_close()

    def answer(self, method: str, target: str, body: bytes) -> tuple[int, dict[str, str]]:
        path, asked = urlsplit(target).path, parse_qs(urlsplit(target).query)
        if path == "/v2/":
            return 200, {}
        if match := re.fullmatch(r"(/v2/.+/blobs/uploads/)\w*", path):
            if method == "PATCH":
                self._sizes[digest_of(body)] = len(body)
            if method == "POST" and asked.get("mount", [""])[0] in self._sizes:
                return 201, {"Docker-Content-Digest": asked["mount"][0]}
            if method == "PUT" and asked["digest"][0] not in self._sizes:
                return 400, {}
            return 201 if method == "PUT" else 202, {"Location": match[1] + "1"}
        if match := re.fullmatch(r"/v2/.+/blobs/(.+)", path):
            size = self._sizes.get(match[1])
            return (200, {"Content-Length": str(size)}) if size else (404, {})
        match = re.fullmatch(r"/v2/(.+)/manifests/(.+)", path)
        if match and method == "PUT":
            manifest = json.loads(body)
            # A list of images, or one.
            parts = manifest.get("manifests") or [manifest["config"], *manifest["layers"]]
            if not {each["digest"]: each["size"] for each in parts}.items() <= self._sizes.items():
                return 400, {}
            self.images[":".join(match.groups())] = body
            self._sizes[digest_of(body)] = len(body)
            return 201, {"Docker-Content-Digest": digest_of(body)}
        return 404, {}


def digest_of(content: bytes) -> str:
    return "sha256:" + hashlib.sha256(content).hexdigest()
