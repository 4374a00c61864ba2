"""The few calls of the Kubernetes API that the agent makes.

Uses the official client's configuration, TLS and tokens, but plain JSON instead of its classes.
"""

from __future__ import annotations

import json
import re
import socket
from typing import TYPE_CHECKING
from urllib.parse import urlencode

import urllib3

from vcuda_oci.model.errors import VcudaError

from ...kube import kube_client

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Any

CONNECT_SECONDS = 10
READ_SECONDS = 30
# A list of a node's pods has megabytes; an object has at most 1.5 MiB in etcd.
_MOST_BYTES = 256 << 20
_LONGEST_LINE = 16 << 20
# Detect a server that vanished without closing the connection within half a minute.
_KEEPALIVE = [
    (socket.IPPROTO_TCP, socket.TCP_NODELAY, 1),
    (socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1),
    (socket.IPPROTO_TCP, socket.TCP_KEEPIDLE, 15),
    (socket.IPPROTO_TCP, socket.TCP_KEEPINTVL, 5),
    (socket.IPPROTO_TCP, socket.TCP_KEEPCNT, 3),
]


class ApiError(Exception):
    """A call of the API failed. status: the HTTP status, or 0 without an answer."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class KubeApi:
    """Client of one API server.

    kubeconfig: a file, or "" for the pod's service account. Raises VcudaError if it is unusable.
    """

    def __init__(self, kubeconfig: str) -> None:
        client = kube_client.load()
        self._settings = client.Configuration()
        try:
            if kubeconfig:
                client.config.load_kube_config(kubeconfig, client_configuration=self._settings)
            else:
                client.config.load_incluster_config(self._settings)
        except Exception as error:  # a malformed file raises errors of several libraries
            raise VcudaError(
                f"leads to no cluster: {error}",
                kubeconfig or "service account",
                "name a kubeconfig with --kubeconfig",
            ) from error
        self._settings.socket_options = _KEEPALIVE
        self._pool = client.rest.RESTClientObject(self._settings).pool_manager

    def get(self, path: str, query: Mapping[str, str], read_seconds: float = READ_SECONDS) -> Any:
        """Return the parsed JSON answer. Raises ApiError."""
        try:
            with self._open("GET", path, query, read_seconds=read_seconds) as response:
                text = response.read(_MOST_BYTES)
                return json.loads(text)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise ApiError(0, _reason(error)) from error

    def events(
        self, path: str, query: Mapping[str, str], seconds: int
    ) -> Iterator[tuple[str, dict[str, Any]]]:
        """Yield the events (type, object) of a watch until the server ends it. Raises ApiError."""
        query = {**query, "watch": "true", "timeoutSeconds": str(seconds)}
        try:
            with self._open("GET", path, query, read_seconds=seconds + READ_SECONDS) as response:
                for line in _lines(response):
                    event = json.loads(line)
                    kind, subject = event["type"], event["object"]
                    if kind == "ERROR":
                        raise ApiError(int(subject.get("code", 0)), str(subject.get("message")))
                    yield kind, subject
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, _reason(error)) from error
        except (ValueError, KeyError, TypeError, AttributeError) as error:
            raise ApiError(0, f"not an event: {error!r}") from error

    def merge(self, path: str, patch: Mapping[str, Any]) -> None:
        """Send a JSON merge patch. Raises ApiError."""
        self._write("PATCH", path, patch, "application/merge-patch+json")

    def create(self, path: str, tree: Mapping[str, Any]) -> None:
        """Create an object. Raises ApiError: status 409 if one of that name exists."""
        self._write("POST", path, tree, "application/json")

    def _write(self, method: str, path: str, tree: Mapping[str, Any], kind: str) -> None:
        try:
            with self._open(method, path, {}, json.dumps(tree).encode(), kind):
                pass
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise ApiError(0, _reason(error)) from error

    def _open(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        body: bytes | None = None,
        kind: str = "",
        read_seconds: float = READ_SECONDS,
    ) -> Any:
        headers = {"Accept": "application/json", "User-Agent": "vcuda-node-agent"}
        # Read the token for each call: a service account's token is renewed.
        for setting in self._settings.auth_settings().values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        if body is not None:
            headers["Content-Type"] = kind
        response = self._pool.request(
            method,
            f"{self._settings.host}{path}?{urlencode(query)}",
            body=body,
            headers=headers,
            preload_content=False,
            retries=False,
            timeout=urllib3.Timeout(connect=CONNECT_SECONDS, read=read_seconds),
        )
        if response.status >= 400:
            with response:
                text = response.read(1 << 16).decode(errors="replace")
            raise ApiError(response.status, f"{response.status} {response.reason}: {text[:300]}")
        return response


def _reason(error: Exception) -> str:
    """Remove memory addresses, which urllib3 1.26 prints, so that equal errors have equal texts."""
    return re.sub(r"<\S+ object at 0x[0-9a-f]+>: ", "", str(error))


def _lines(response: Any) -> Iterator[bytes]:
    """Yield complete lines as they arrive; drop a last line that the server cut off."""
    rest_of = bytearray()
    for part in response.stream(65536):
        rest_of += part
        if len(rest_of) > _LONGEST_LINE:
            raise ValueError("a line without end")
        *whole, last = rest_of.split(b"\n")
        rest_of = bytearray(last)
        yield from (bytes(line) for line in whole if line)
