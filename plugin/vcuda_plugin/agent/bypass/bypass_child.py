"""Agent side of the watch from outside: starts and restarts its process, logs what it reports."""

from __future__ import annotations

import asyncio
import json
import logging

from ..gpus import inventory
from ..process import child

MODULE = "vcuda_plugin.agent.bypass.outside_watch"
# The longest pause between two polls, plus the time that NVML may take.
_LIMIT_SECONDS = 30
_PAUSE_SECONDS = 1

_log = logging.getLogger(__name__)


async def follow() -> None:
    """Run the watch's process and log its lines until cancelled."""
    while True:
        async with child.running(MODULE) as (_, output):
            limit = inventory.START_SECONDS
            try:
                # A process that is killed may leave half a line.
                while (line := await asyncio.wait_for(output.readline(), limit)).endswith(b"\n"):
                    limit = _LIMIT_SECONDS
                    for text in json.loads(line):
                        _log.warning("%s", text)
            except asyncio.TimeoutError:
                _log.warning("the watch from outside: no poll for %d s; restarting it", limit)
        await asyncio.sleep(_PAUSE_SECONDS)
