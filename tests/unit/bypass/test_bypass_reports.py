"""The agent logs the findings of the watch process, however that process ends."""

from __future__ import annotations

import asyncio
import contextlib
import json
from collections.abc import AsyncIterator
from typing import Any

import pytest

from vcuda_plugin.agent.bypass import bypass_child
from vcuda_plugin.agent.gpus import inventory
from vcuda_plugin.agent.process import child


class Watches:
    """The processes that the agent starts, one after the other, by what each says; None: nothing
    more, and it lives on."""

    def __init__(self, *said: list[str | None]) -> None:
        self.said, self.started = list(said), list[Any]()

    @contextlib.asynccontextmanager
    async def running(self, *words: str) -> AsyncIterator[tuple[Any, asyncio.StreamReader]]:
        self.started.append(words)
        if len(self.started) > len(self.said):
            await asyncio.sleep(3600)
        stream = asyncio.StreamReader()
        lines = self.said[len(self.started) - 1]
        stream.feed_data("".join(line for line in lines if line).encode())
        if None not in lines:
            stream.feed_eof()
        yield None, stream


def look(*told: str) -> str:
    return json.dumps(told) + "\n"


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> None:
    for module, name in (
        (bypass_child, "_LIMIT_SECONDS"),
        (bypass_child, "_PAUSE_SECONDS"),
        (inventory, "START_SECONDS"),
    ):
        monkeypatch.setattr(module, name, 0.05)


def followed(watches: Watches, monkeypatch: pytest.MonkeyPatch) -> None:
    """Follow the processes until the last one has written all its lines."""
    monkeypatch.setattr(child, "running", watches.running)

    async def follow() -> None:
        task = asyncio.ensure_future(bypass_child.follow())
        while len(watches.started) <= len(watches.said) and not task.done():
            await asyncio.sleep(0.005)
        task.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await task

    asyncio.run(asyncio.wait_for(follow(), 30))


def test_findings_are_reported_after_each_start_of_the_watch(
    quick: None, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    watches = Watches(
        [look(), look("a", "b")],
        [look("c"), '["half'],
        [look(), None],
    )
    followed(watches, monkeypatch)
    assert [entry.getMessage() for entry in caplog.records] == [
        "a",
        "b",
        "c",
        "the watch from outside: no poll for 0 s; restarting it",
    ]
    assert watches.started[0] == ("vcuda_plugin.agent.bypass.outside_watch",)
