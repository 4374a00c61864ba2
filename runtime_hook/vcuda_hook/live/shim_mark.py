"""Recognise the shim's file and its version: see libvcuda/shim/entry/version_mark.c."""

from __future__ import annotations

import os

from vcuda_oci.model import names
from vcuda_oci.pages import layout

_BEGIN = b"\0vcuda shim, "
MOST_BYTES = 32 << 20  # the shim has a tenth of this size, the driver's libcuda a multiple


def expected() -> str:
    """The mark of this installation's shim."""
    return f"version {names.VERSION}, pages {layout.ABI_VERSION}"


def read(path: str) -> str:
    """Read the shim's mark from the host's file at `path`, links followed; "": not the shim.

    Raises OSError.
    """
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    with open(fd, "rb") as file:
        return "" if os.fstat(fd).st_size > MOST_BYTES else said_by(file.read(MOST_BYTES))


def said_by(content: bytes) -> str:
    """Find the mark in a file's content; "": not the shim."""
    _, begin, rest = content.partition(_BEGIN)
    return rest[:64].partition(b"\0")[0].decode("ascii", "replace") if begin else ""
