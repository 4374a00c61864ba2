"""Fixtures: clients, compiled as for the shim's tests."""

from __future__ import annotations

from shim.conftest import built, client

__all__ = ["built", "client"]
