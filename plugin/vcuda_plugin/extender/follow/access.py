"""Access to the API server for a client other than the official one's connection pool."""

from __future__ import annotations

import ssl
from typing import NamedTuple
from urllib.parse import urlsplit

from ...kube.api import KubeApi
from .http_client import Server


class Access(NamedTuple):
    """prefix: of each path. headers: their lines."""

    server: Server
    prefix: str
    headers: str


def access_by(api: KubeApi) -> Access | None:
    """The access that `api` has now, with files read again. None: only through a proxy.

    Raises OSError: a certificate cannot be read; ValueError: the token has an invalid character.
    """
    if api.has_proxy:
        return None
    settings = api.settings
    url = urlsplit(str(settings.host))
    address = str(url.hostname)
    # kubernetes 22.6 lacks both.
    trusted, name = (getattr(settings, each, None) for each in ("ca_cert_data", "tls_server_name"))
    tls = None
    if url.scheme == "https":
        tls = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        tls.check_hostname = settings.verify_ssl and settings.assert_hostname is not False
        tls.verify_mode = ssl.CERT_REQUIRED if settings.verify_ssl else ssl.CERT_NONE
        if settings.ssl_ca_cert or trusted:
            tls.load_verify_locations(settings.ssl_ca_cert, cadata=trusted)
        else:
            tls.load_default_certs()
        if settings.cert_file:
            tls.load_cert_chain(settings.cert_file, settings.key_file)
    lines = {**api.headers(), "Content-Type": "application/json"}
    headers = "".join(f"{name}: {value}\r\n" for name, value in lines.items())
    if "\n" in headers.replace("\r\n", ""):
        raise ValueError("the token has a line's end in it")
    server = Server(address, url.port or (443 if tls else 80), name or address, tls)
    return Access(server, api.prefix, f"Host: {url.netloc}\r\n{headers}")
