"""The agent's end of the watch from outside: it keeps it running, and counts what it found."""

from __future__ import annotations

import asyncio
import json
import logging
from collections import Counter
from typing import TYPE_CHECKING

from vcuda_oci.config import AUTO, OFF, REPORT, STOP

from . import child, inventory

if TYPE_CHECKING:
    from vcuda_oci.config import Config

# The longest pause between two looks, and what NVML may take.
_LIMIT_SECONDS = 30
_PAUSE_SECONDS = 1

_log = logging.getLogger(__name__)


class BypassReports:
    """found, stopped: findings since the agent started, and those whose container was stopped, by
    `why` (bypass.MEMORY, …)."""

    def __init__(self) -> None:
        self.found: Counter[str] = Counter()
        self.stopped: Counter[str] = Counter()

    async def follow(self, settings: Config) -> None:
        """For ever."""
        words = (
            *(settings.driver_root, settings.state_dir),
            STOP if settings.stop_bypass else REPORT,
            AUTO if settings.driver_limits else OFF,
        )
        while True:
            async with child.running("vcuda_plugin.outside_watch", *words) as (_, said):
                limit = inventory.START_SECONDS
                try:
                    # One that is killed may leave half a line.
                    while (line := await asyncio.wait_for(said.readline(), limit)).endswith(b"\n"):
                        limit = _LIMIT_SECONDS
                        self._take(line)
                except asyncio.TimeoutError:
                    _log.warning("the watch from outside: no look for %d s; started anew", limit)
            await asyncio.sleep(_PAUSE_SECONDS)

    def _take(self, line: bytes) -> None:
        look = json.loads(line)
        for text in look["told"]:
            _log.warning("%s", text)
        for finding in look["found"]:
            self.found[finding["why"]] += 1
            self.stopped[finding["why"]] += finding["stopped"]
