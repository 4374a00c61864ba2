"""The agent's side of the GPU probe: what counts as a hang of NVML."""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import pytest

from vcuda_oci.system import settings_file
from vcuda_plugin.agent.gpus import health, inventory
from vcuda_plugin.agent.gpus.inventory import Inventory
from vcuda_plugin.agent.process import child

GPU = {"uuid": "GPU-1", "index": 0, "minor": 0, "memory_bytes": 1 << 30, "model": "m"}
SAMPLE: dict[str, Any] = {
    "gpus": [GPU], "numa": {}, "driver": "", "cuda": "", "distances": None, "failing": {},
    "xids": [], "silent": {}, "sensors": {}, "own": [], "profiles": {}, "places": {},
}  # fmt: skip
LIMIT = 0.2


def follow(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, stopped: bool) -> None:
    """stopped: the agent is, and the probe writes on; else the probe hangs."""
    monkeypatch.setattr(inventory, "LIMIT_SECONDS", LIMIT)
    monkeypatch.setattr(inventory, "_LATE_SECONDS", LIMIT)
    config = tmp_path / "config.toml"
    config.write_text(f'state-dir = "{tmp_path}"\n')
    line, seen = json.dumps(SAMPLE).encode() + b"\n", list[Inventory]()

    @contextlib.asynccontextmanager
    async def running(*_: str) -> AsyncIterator[tuple[None, asyncio.StreamReader]]:
        yield None, reader

    async def run() -> None:
        nonlocal reader
        reader = asyncio.StreamReader()
        await asyncio.get_running_loop().connect_read_pipe(
            lambda: asyncio.StreamReaderProtocol(reader), lines
        )
        settings = settings_file.load(str(config))
        following = inventory.follow(settings, seen.append, lambda _: None, lambda _: None)
        task = asyncio.ensure_future(following)
        os.write(write, line)
        await asyncio.sleep(LIMIT / 2)
        if stopped:
            # The epoll of a process that goes on returns nothing: timers come first.
            asyncio.get_running_loop().call_later(2 * LIMIT, os.write, write, line)
            time.sleep(4 * LIMIT)
        await asyncio.sleep(LIMIT / 2 if stopped else 2 * LIMIT)
        task.cancel()

    monkeypatch.setattr(child, "running", running)
    reader: asyncio.StreamReader
    read, write = os.pipe()
    with open(read, "rb", 0) as lines, open(write, "wb"):
        asyncio.run(run())
    assert seen != []


def test_probe_without_an_answer_hangs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follow(tmp_path, monkeypatch, stopped=False)
    assert "NVML: no answer" in caplog.text


def test_an_agent_that_was_stopped_takes_no_probe_for_hanging(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    follow(tmp_path, monkeypatch, stopped=True)
    assert caplog.text == ""


def test_probe_that_ends_for_new_mig_devices_again_and_again_makes_no_gpu_unhealthy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """As while a burst of pods gets instances, which each change what NVML has to be asked."""
    monkeypatch.setattr(inventory, "_PAUSE_SECONDS", 0.01)
    monkeypatch.setattr(health, "DOWN_SECONDS", 0.02)
    config = tmp_path / "config.toml"
    config.write_text(f'state-dir = "{tmp_path}"\n')
    changed = b'{"changed": true}\n'
    outputs = [json.dumps(SAMPLE).encode() + b"\n" + changed, *[changed] * 9]
    seen, probes = list[Inventory](), iter(outputs)

    @contextlib.asynccontextmanager
    async def running(*_: str) -> AsyncIterator[tuple[None, asyncio.StreamReader]]:
        reader = asyncio.StreamReader()
        output = next(probes, b"")
        if output:
            reader.feed_data(output)
            reader.feed_eof()
        else:
            task.cancel()
        yield None, reader

    monkeypatch.setattr(child, "running", running)

    async def run() -> None:
        nonlocal task
        settings = settings_file.load(str(config))
        following = inventory.follow(settings, seen.append, lambda _: None, lambda _: None)
        task = asyncio.ensure_future(following)
        await asyncio.wait({task})

    task: asyncio.Future[None]
    asyncio.run(run())
    assert [each.unhealthy for each in seen] == [{}]
    assert caplog.text == ""
