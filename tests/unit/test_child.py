"""A child that ends by itself, just when it is told to, is one of the agent's all the same."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from typing import Any

import pytest

from vcuda_plugin import child


@pytest.fixture
def watcher() -> Iterator[Any]:
    """As newer Pythons watch by themselves: an end is seen with the loop's next turn."""
    policy = asyncio.DefaultEventLoopPolicy()
    policy.set_child_watcher(asyncio.PidfdChildWatcher())
    asyncio.set_event_loop_policy(policy)
    yield policy.get_child_watcher()
    asyncio.set_event_loop_policy(None)


def test_a_child_that_has_just_ended_is_not_told_of_as_a_stranger(
    watcher: Any, caplog: pytest.LogCaptureFixture
) -> None:
    async def one_that_dies() -> int | None:
        watcher.attach_loop(asyncio.get_running_loop())
        async with child.running("vcuda_plugin.gpu_probe", "/nonexistent", "/nonexistent") as (
            process,
            _,
        ):
            os.kill(process.pid, signal.SIGKILL)
            while b") Z " not in stat_of(process.pid):
                pass  # and the loop has no turn
        return process.returncode

    assert asyncio.run(one_that_dies()) == -signal.SIGKILL
    assert caplog.messages == []


def stat_of(pid: int) -> bytes:
    with open(f"/proc/{pid}/stat", "rb") as file:
        return file.read()
