"""The agent notifies the watchdog while its loop and its arbiter run."""

from __future__ import annotations

import asyncio
import time
from types import SimpleNamespace
from typing import Any

import pytest

from vcuda_oci.system import systemd
from vcuda_plugin.agent import alive


def notifications(monkeypatch: pytest.MonkeyPatch, looked_before: float) -> list[str]:
    """Notifications in three watchdog periods; the arbiter polled `looked_before` seconds ago."""
    lines: list[str] = []
    periods: list[float] = []

    async def passes(seconds: float) -> None:
        periods.append(seconds)
        if len(periods) > 3:
            raise asyncio.CancelledError

    monkeypatch.setattr(systemd, "notify", lines.append)
    monkeypatch.setattr(systemd, "watchdog_seconds", lambda: 30.0)
    monkeypatch.setattr(asyncio, "sleep", passes)
    opened = asyncio.Event()
    opened.set()
    arbiter: Any = SimpleNamespace(sampled_at=time.monotonic() - looked_before)
    with pytest.raises(asyncio.CancelledError):
        asyncio.run(alive.notify_systemd(opened, opened, arbiter))
    return lines


def test_an_agent_with_a_running_arbiter_is_alive(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notifications(monkeypatch, 0.3) == ["READY=1", *["WATCHDOG=1"] * 3]


def test_an_agent_with_a_stalled_arbiter_is_restarted(monkeypatch: pytest.MonkeyPatch) -> None:
    assert notifications(monkeypatch, 60) == ["READY=1"]
