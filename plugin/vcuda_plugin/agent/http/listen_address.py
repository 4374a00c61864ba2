"""The ``listen`` setting: a server's address as "address:port" or "[address]:port"."""

from __future__ import annotations

import socket

from vcuda_oci.model.errors import VcudaError


def check(text: str, path: str) -> None:
    """Raise VcudaError unless `text`, set in the file `path`, is empty or an address and a port."""
    try:
        if text:
            parse(text)
    except ValueError as error:
        hint = 'write an address and a port such as "127.0.0.1:5678", or ""'
        raise VcudaError(f"listen cannot be '{text}': {error}", path, hint) from error


def parse(text: str) -> tuple[str, int]:
    """Split into address and port. Raises ValueError unless the address is numeric.

    Host names are refused: the address would depend on DNS.
    """
    host, colon, port = text.rpartition(":")
    family = socket.AF_INET
    if host.startswith("[") and host.endswith("]"):
        host, family = host[1:-1], socket.AF_INET6
    if not (colon and port.isascii() and port.isdigit() and 1 <= int(port) <= 65535):
        raise ValueError("no port")
    try:
        socket.inet_pton(family, host)
    except OSError as error:
        raise ValueError("no numeric address") from error
    return host, int(port)


def is_loopback(host: str) -> bool:
    return host.startswith("127.") or host == "::1"
