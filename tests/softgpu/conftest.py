"""The software GPU's tests compile their clients as the shim's do."""

from __future__ import annotations

from shim.conftest import built, client

__all__ = ["built", "client"]
