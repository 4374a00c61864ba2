"""The API server, reached as the official client says, and read without its object models.

Those take milliseconds for each of tens of thousands of pods; the configuration, the certificates,
the tokens and their renewal, and the pool of connections are the client's.
"""

from __future__ import annotations

import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import quote, urlencode, urlsplit

import urllib3

from vcuda_oci.model.errors import VcudaError

from ...kube import kube_client
from ..model import json_bytes
from .http_client import Server

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

# Below the five seconds that kube-scheduler waits for an extender by default.
CALL_SECONDS = 4.0
CONNECTIONS = 32
_MOST_LINE_BYTES = 16 << 20
# A piece that took longer had not been there yet.
_AT_ONCE_SECONDS = 0.0005
_TOGETHER_SECONDS = 0.02


class Unreachable(Exception):
    """The API server did not answer, or broke off: whether the call took effect is unknown."""


class Withheld(Exception):
    """It was not sent after all: why."""


class Access(NamedTuple):
    """prefix: before each path. headers: their lines."""

    server: Server
    prefix: str
    headers: str


class Api:
    def __init__(self, kubeconfig: str = "") -> None:
        """kubeconfig: a file; "": the service account of the pod that this runs in.

        Raises VcudaError: there is none, or it says nothing.
        """
        client = kube_client.load()
        configuration = client.Configuration()
        configuration.connection_pool_maxsize = CONNECTIONS
        configuration.keep_alive = True
        try:
            if kubeconfig:
                client.config.load_kube_config(kubeconfig, client_configuration=configuration)
            else:
                client.config.load_incluster_config(configuration)
        except Exception as error:  # the library raises many kinds for a bad file
            where = kubeconfig or "the pod's service account"
            hint = "name a readable file with --kubeconfig, or run in the cluster"
            raise VcudaError(f"no API server to ask: {error}", where, hint) from error
        self._configuration = configuration
        pools: urllib3.PoolManager = client.rest.RESTClientObject(configuration).pool_manager
        self._proxied = pools.proxy is not None
        # The pool of the one host: to look it up again takes as long as a call does.
        self._pool = pools.connection_from_url(str(configuration.host))
        url = str(configuration.host).rstrip("/")
        # A proxy needs the whole URL, except where it only opens a tunnel for TLS.
        plain = self._proxied and url.startswith("http:")
        self._prefix = url if plain else urlsplit(url).path

    def access(self) -> Access | None:
        """For another client, as of now: files are read again. None: by a proxy only.

        Raises OSError: what it trusts or shows cannot be read; ValueError: the token is none.
        """
        if self._proxied:
            return None
        said = self._configuration
        url = urlsplit(str(said.host))
        address = str(url.hostname)
        # kubernetes 22.6 has neither.
        trusted, name = (getattr(said, each, None) for each in ("ca_cert_data", "tls_server_name"))
        tls = None
        if url.scheme == "https":
            tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
            tls.check_hostname = said.verify_ssl and said.assert_hostname is not False
            tls.verify_mode = ssl.CERT_REQUIRED if said.verify_ssl else ssl.CERT_NONE
            if said.ssl_ca_cert or trusted:
                tls.load_verify_locations(said.ssl_ca_cert, cadata=trusted)
            else:
                tls.load_default_certs()
            if said.cert_file:
                tls.load_cert_chain(said.cert_file, said.key_file)
        headers = "".join(f"{name}: {value}\r\n" for name, value in self._headers().items())
        if "\n" in headers.replace("\r\n", ""):
            raise ValueError("the token has a line's end in it")
        server = Server(address, url.port or (443 if tls else 80), name or address, tls)
        return Access(server, self._prefix, f"Host: {url.netloc}\r\n{headers}")

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
            rest, waited = b"", time.monotonic()
            for piece in answer.stream(1 << 16):
                came = time.monotonic() - waited > _AT_ONCE_SECONDS
                *whole, rest = (rest + piece).split(b"\n")
                if len(rest) > _MOST_LINE_BYTES:
                    raise Unreachable(f"watch {path}: an object without an end")
                for line in whole:
                    yield json_bytes.loads(line)
                if came:
                    # What comes meanwhile is read together: to wake for each event takes more from
                    # the calls beside than the events do.
                    time.sleep(_TOGETHER_SECONDS)
                waited = time.monotonic()
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:
            raise Unreachable(f"watch {path}: {error}") from error
        finally:
            answer.close()

    def _headers(self) -> dict[str, str]:
        headers = {"Accept": "application/json", "User-Agent": "vcuda-scheduler-extender"}
        headers["Content-Type"] = "application/json"
        # A token that is about to end is read anew here.
        for setting in self._configuration.auth_settings().values():
            if setting["in"] == "header":
                headers[setting["key"]] = setting["value"]
        return headers

    def _request(
        self,
        method: str,
        path: str,
        query: Mapping[str, str],
        seconds: float,
        data: bytes | None,
        preload: bool,
    ) -> urllib3.BaseHTTPResponse:
        return self._pool.urlopen(
            method,
            self._prefix + path + ("?" + urlencode(query) if query else ""),
            body=data,
            headers=self._headers(),
            timeout=urllib3.Timeout(connect=CALL_SECONDS, read=seconds),
            retries=False,
            assert_same_host=False,
            preload_content=preload,
        )


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{quote(namespace, '')}/pods/{quote(name, '')}"
