"""Fixtures: clients, compiled as for the shim's tests; a folder for sockets."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from shim.conftest import built, client

__all__ = ["built", "client"]


@pytest.fixture
def folder() -> Iterator[Path]:
    """With a short path, since a socket's has at most 107 bytes."""
    with tempfile.TemporaryDirectory(dir="/dev/shm", prefix="mps") as found:
        os.chmod(found, 0o755)
        yield Path(found)
