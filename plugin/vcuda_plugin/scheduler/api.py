"""The API server, reached as the official client says, and read without its object models.

Those take milliseconds for each of tens of thousands of pods; the configuration, the certificates,
the tokens and their renewal, and the pool of connections are the client's.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any
from urllib.parse import quote, urlencode, urlsplit

import kubernetes.client
import kubernetes.config
import urllib3
from kubernetes.config import ConfigException

from vcuda_oci.errors import VcudaError

from . import json_bytes

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Below the five seconds that kube-scheduler waits for an extender by default.
CALL_SECONDS = 4.0
CONNECTIONS = 32
_MOST_LINE_BYTES = 16 << 20


class Unreachable(Exception):
    """The API server did not answer, or broke off: nobody knows whether it did what was asked."""


class Api:
    def __init__(self, kubeconfig: str = "") -> None:
        """kubeconfig: a file; "": the service account of the pod that this runs in.

        Raises VcudaError: there is none, or it says nothing.
        """
        configuration: Any = kubernetes.client.Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.keep_alive = True
        try:
            if kubeconfig:
                load: Any = kubernetes.config.load_kube_config
                load(config_file=kubeconfig, client_configuration=configuration)
            else:
                load = kubernetes.config.load_incluster_config
                load(client_configuration=configuration)
        except (ConfigException, OSError) as error:
            where = kubeconfig or "the pod's service account"
            mend = "name a readable file with --kubeconfig, or run in the cluster"
            raise VcudaError(f"no API server to ask: {error}", where, mend) from error
        self._configuration = configuration
        # The pool of the one host: to look it up again takes as long as a call does.
        client = kubernetes.client.ApiClient(configuration)
        pools: urllib3.PoolManager = client.rest_client.pool_manager
        self._pool = pools.connection_from_url(str(configuration.host))
        self._prefix = urlsplit(str(configuration.host)).path.rstrip("/")

    def call(
        self,
        method: str,
        path: str,
        body: Any = None,
        seconds: float = CALL_SECONDS,
        **query: str,
    ) -> tuple[int, Any]:
        """The status and the object that came with it. Raises Unreachable."""
        data = None if body is None else json_bytes.dumps(body)
        try:
            answer = self._request(method, path, query, seconds, data, preload=True)
            return answer.status, json_bytes.loads(answer.data)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"{method} {path}: {error}") from error

    def lines(self, path: str, seconds: float, **query: str) -> Iterator[Any]:
        """The objects of a watch, until the server ends it. seconds: of silence that mean that the
        server is gone. Raises Unreachable."""
        try:
            answer = self._request("GET", path, query, seconds, None, preload=False)
        except (urllib3.exceptions.HTTPError, OSError) as error:
            raise Unreachable(f"watch {path}: {error}") from error
        try:
            if answer.status != 200:
                # What it says is an object too, of kind Status.
                yield {"type": "ERROR", "object": {"code": answer.status}}
                return
            rest = b""
            for piece in answer.stream(1 << 16):
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _MOST_LINE_BYTES:
                    raise Unreachable(f"watch {path}: an object without an end")
                for line in whole:
                    yield json_bytes.loads(line)
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"watch {path}: {error}") from error
        finally:
            answer.close()

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        seconds: float,
        data: bytes | None,
        preload: bool,
    ) -> urllib3.BaseHTTPResponse:
        headers = {"Accept": "application/json", "User-Agent": "vcuda-scheduler-extender"}
        if data is not None:
            headers["Content-Type"] = "application/json"
        # A token that is about to end is read anew here.
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        return self._pool.urlopen(
            method,
            self._prefix + path + ("?" + urlencode(query) if query else ""),
            body=data,
            headers=headers,
            timeout=urllib3.Timeout(connect=CALL_SECONDS, read=seconds),
            retries=False,
            preload_content=preload,
        )


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, '')}/pods/{quote(name, '')}"
