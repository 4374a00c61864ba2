"""The agent's end of the watch from outside: it keeps it running, and logs what it tells."""

from __future__ import annotations

import asyncio
import json
import logging
from typing import TYPE_CHECKING

from vcuda_oci.config import AUTO, OFF, REPORT, STOP

from ..gpus import inventory
from ..process import child

if TYPE_CHECKING:
    from vcuda_oci.config import Config

MODULE = "vcuda_plugin.agent.bypass.outside_watch"
# The longest pause between two looks, and what NVML may take.
_LIMIT_SECONDS = 30
_PAUSE_SECONDS = 1

_log = logging.getLogger(__name__)


async def follow(settings: Config) -> None:
    """For ever."""
    words = (
        *(settings.driver_root, settings.state_dir),
        STOP if settings.stop_bypass else REPORT,
        AUTO if settings.driver_limits else OFF,
    )
    while True:
        async with child.running(MODULE, *words) as (_, said):
            limit = inventory.START_SECONDS
            try:
                # One that is killed may leave half a line.
                while (line := await asyncio.wait_for(said.readline(), limit)).endswith(b"\n"):
                    limit = _LIMIT_SECONDS
                    for text in json.loads(line):
                        _log.warning("%s", text)
            except asyncio.TimeoutError:
                _log.warning("the watch from outside: no look for %d s; started anew", limit)
        await asyncio.sleep(_PAUSE_SECONDS)
