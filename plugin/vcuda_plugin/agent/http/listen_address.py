"""``listen``: where a server of ours listens, as "address:port", "[address]:port"."""

from __future__ import annotations

import socket

from vcuda_oci.errors import VcudaError


def check(text: str, path: str) -> None:
    """Raises VcudaError: `text`, set in `path`, is neither empty nor an address and a port."""
    try:
        if text:
            parse(text)
    except ValueError as error:
        mend = 'write an address and a port such as "127.0.0.1:5678", or ""'
        raise VcudaError(f"listen cannot be '{text}': {error}", path, mend) from error


def parse(text: str) -> tuple[str, int]:
    """Raises ValueError: not a numeric address and a port. Names would be whoever DNS says."""
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
