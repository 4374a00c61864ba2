"""Keys and self-signed certificates."""

from __future__ import annotations

import subprocess
from typing import Any


def certify(folder: Any, *names: str, address: str = "127.0.0.1") -> None:
    """Write a key and a self-signed certificate for each name: `folder`/NAME.key, NAME.crt."""
    for name in names:
        subject = ["-subj", "/CN=" + name, "-addext", "subjectAltName=IP:" + address]
        files = ["-keyout", f"{folder}/{name}.key", "-out", f"{folder}/{name}.crt"]
        request = ["openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2"]
        subprocess.run([*request, *files, *subject], check=True, capture_output=True)
