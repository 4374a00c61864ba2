"""Agent side of the suspender: runs its process while containers need it, logs its lines."""

from __future__ import annotations

import asyncio
import json
import logging

from vcuda_oci.system.settings_file import Config

from ..ledger.records import Records
from ..process import child
from .suspender import concerns

MODULE = "vcuda_plugin.agent.suspend.suspend_process"
_PERIOD_SECONDS = 1.0

_log = logging.getLogger(__name__)


async def follow(settings: Config) -> None:
    """Run until cancelled."""
    records = Records(settings.state_dir)
    while True:
        if any(concerns(one) for one in records.read()):
            async with child.running(MODULE) as (_, output):
                # A process that is killed may leave half a line.
                while (line := await output.readline()).endswith(b"\n"):
                    _log.warning("%s", json.loads(line))
        await asyncio.sleep(_PERIOD_SECONDS)
