"""Client of the Kubernetes API: plain JSON, by the official client's configuration.

The configuration, the certificates, the tokens and their renewal, and the pool of connections are
the official client's. Its object models are not used: they take milliseconds for each of tens of
thousands of pods.
"""

from __future__ import annotations

import re
import socket
import time
from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from vcuda_oci.model.errors import VcudaError

from . import json_bytes, kube_client

Object = dict[str, Any]

# Below the five seconds that kube-scheduler waits for an extender by default.
CALL_SECONDS = 4.0
# A page of a list of pods has megabytes.
READ_SECONDS = 30.0
CONNECTIONS = 32
# An object has at most 1.5 MiB in etcd.
_MOST_BYTES = 256 << 20
_LONGEST_LINE = 16 << 20
_PART_BYTES = 1 << 16
# A part that took longer to arrive was not waiting to be read.
_AT_ONCE_SECONDS = 0.0005
_JSON, MERGE_PATCH = "application/json", "application/merge-patch+json"
# Detect a server that vanished without closing the connection within half a minute.
_KEEPALIVE = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class ApiError(Exception):
    """A call of the API failed.

    status: the HTTP status; 0: no answer came, or it broke off, and whether the call took effect is
    unknown.
    """

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class KubeApi:
    """Client of one API server, for the calls of one program.

    kubeconfig: a file, or "" for the pod's service account. Raises VcudaError if it is unusable.
    """

    def __init__(self, kubeconfig: str, program: str) -> None:
        client = kube_client.load()
        self._from = (kubeconfig, program)
        self.settings = client.Configuration()
        self.settings.connection_pool_maxsize = CONNECTIONS
        self.settings.socket_options = _KEEPALIVE
        try:
            if kubeconfig:
                client.config.load_kube_config(kubeconfig, client_configuration=self.settings)
            else:
                client.config.load_incluster_config(self.settings)
        except Exception as error:  # a malformed file raises errors of several libraries
            raise VcudaError(
                f"leads to no cluster: {error}",
                kubeconfig or "the pod's service account",
                "name a kubeconfig with --kubeconfig",
            ) from error
        pools: urllib3.PoolManager = client.rest.RESTClientObject(self.settings).pool_manager
        self.has_proxy = pools.proxy is not None
        # The pool of the one host: to look it up for each call takes as long as a call does.
        self._pool = pools.connection_from_url(str(self.settings.host))
        url = str(self.settings.host).rstrip("/")
        # A proxy needs the whole URL, except where it only opens a tunnel for TLS.
        plain = self.has_proxy and url.startswith("http:")
        self.prefix = url if plain else urlsplit(url).path

    def renewed(self) -> KubeApi:
        """Return a client that has read the kubeconfig and the certificates again."""
        return KubeApi(*self._from)

    def headers(self) -> dict[str, str]:
        """The headers of a call. A token that is about to end is read again here."""
        headers = {"Accept": "application/json", "User-Agent": self._from[1]}
        for setting in self.settings.auth_settings().values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        return headers

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        *,
        query: Mapping[str, str] | None = None,
        seconds: float = CALL_SECONDS,
        kind: str = _JSON,
    ) -> tuple[int, Any]:
        """Return the HTTP status and the JSON that came with it.

        seconds: without a byte from the server, after which the call fails. kind: the body's media
        type. Raises ApiError: no answer, or one that is not JSON.
        """
        status, text = self._answer(method, path, body, query, seconds, kind)
        return status, _parsed(text, method, path)

    def get(
        self, path: str, query: Mapping[str, str] | None = None, seconds: float = READ_SECONDS
    ) -> Any:
        """Return the JSON at `path`. Raises ApiError."""
        return _parsed(_checked(*self._answer("GET", path, None, query, seconds)), "GET", path)

    def merge(self, path: str, patch: Mapping[str, Any]) -> None:
        """Send a JSON merge patch. Raises ApiError."""
        _checked(*self._answer("PATCH", path, patch, kind=MERGE_PATCH))

    def create(self, path: str, tree: Mapping[str, Any]) -> None:
        """Create an object. Raises ApiError: status 409 if one of that name exists."""
        _checked(*self._answer("POST", path, tree))

    def watch(
        self, path: str, query: Mapping[str, str], seconds: int, together_seconds: float = 0.0
    ) -> Iterator[tuple[str, Object]]:
        """Yield the events (type, object) of a watch until the server ends it, after `seconds`.

        together_seconds: how long to wait after an event for others, to read them at once. Raises
        ApiError: an ERROR event's status is its code.
        """
        query = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        try:
            with self._request("GET", path, query, seconds + READ_SECONDS) as response:
                if response.status >= 400:
                    _checked(response.status, response.read(1 << 16))
                for line in _lines(response, together_seconds):
                    event = json_bytes.loads(line)
                    kind, subject = event["type"], event["object"]
                    if kind == "ERROR":
                        raise ApiError(int(subject.get("code", 0)), str(subject.get("message")))
                    yield kind, subject
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, f"watch {path}: {_reason(error)}") from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ApiError(0, f"watch {path}: not an event: {error!r}") from error

    def _answer(
        self,
        method: str,
        path: str,
        body: Any,
        query: Mapping[str, str] | None = None,
        seconds: float = READ_SECONDS,
        kind: str = _JSON,
    ) -> tuple[int, bytes]:
        data = None if body is None else json_bytes.dumps(body)
        try:
            with self._request(method, path, query, seconds, data, kind) as response:
                return response.status, _body(response)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, f"{method} {path}: {_reason(error)}") from error

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str] | None,
        seconds: float,
        data: bytes | None = None,
        kind: str = "",
    ) -> Any:
        headers = self.headers()
        if data is not None:
            headers["Content-Type"] = kind
        return self._pool.urlopen(
            method,
            self.prefix + path + ("?" + urlencode(query) if query else ""),
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=CALL_SECONDS, read=seconds),
            retries=False,
            assert_same_host=False,
            preload_content=False,
        )


def path_of(api: str, namespace: str, kind: str, name: str = "") -> str:
    """Return the path of an object; without a name, of its kind. api: such as "/api/v1"."""
    folder = f"{api}/namespaces/{quote(namespace, '')}/{kind}"
    return f"{folder}/{quote(name, '')}" if name else folder


def message_of(status: Any) -> str:
    """Return what a Status object of Kubernetes says."""
    return str(status.get("message", ""))[:300] if isinstance(status, dict) else ""


def _parsed(text: bytes, method: str, path: str) -> Any:
    try:
        return json_bytes.loads(text)
    except ValueError as error:
        raise ApiError(0, f"{method} {path}: {error}") from error


def _checked(status: int, body: bytes) -> bytes:
    """Return the body of an answer. Raises ApiError: the server refused the call."""
    if status < 400:
        return body
    try:
        text = message_of(json_bytes.loads(body))
    except ValueError:
        text = ""
    raise ApiError(status, f"{status} {text or body.decode(errors='replace')[:300]}")


def _reason(error: Exception) -> str:
    """Remove memory addresses, which urllib3 1.26 prints, so that equal errors have equal texts."""
    return re.sub(r"<\S+ object at 0x[0-9a-f]+>: ", "", str(error))


def _body(response: Any) -> bytes:
    """Read in parts: Python 3.9 allocates as many bytes as a read may return. Raises ApiError."""
    parts, size = [], 0
    for part in response.stream(_PART_BYTES):
        parts.append(part)
        size += len(part)
        if size > _MOST_BYTES:
            raise ApiError(0, f"an answer of more than {_MOST_BYTES} bytes")
    return b"".join(parts)


def _lines(response: Any, together_seconds: float) -> Iterator[bytes]:
    """Yield complete lines as they arrive; drop a last line that the server cut off."""
    rest, waited = bytearray(), time.monotonic()
    for part in response.stream(_PART_BYTES):
        arrived = time.monotonic() - waited > _AT_ONCE_SECONDS
        rest += part
        if len(rest) > _LONGEST_LINE:
            raise ValueError("a line without end")
        *whole, last = rest.split(b"\n")
        rest = bytearray(last)
        yield from (bytes(line) for line in whole if line)
        if arrived and together_seconds:
            # To wake for each event takes more from the calls beside than the events do.
            time.sleep(together_seconds)
        waited = time.monotonic()
