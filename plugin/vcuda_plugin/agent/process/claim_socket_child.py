"""Agent side of the claim socket: starts and restarts its process."""

from __future__ import annotations

import asyncio
import logging
import os

from vcuda_oci.start import claim_socket
from vcuda_oci.system.settings_file import Config

from . import child

MODULE = "vcuda_plugin.agent.process.claim_socket"
_PAUSE_SECONDS = 5

_log = logging.getLogger(__name__)


async def run(settings: Config, opened: asyncio.Event) -> None:
    """Run the claim socket's process; run it again unless another process took the socket over."""
    path = f"{settings.state_dir}/{claim_socket.NAME}"
    while True:
        async with child.running(MODULE) as (process, output):
            if await output.readline():
                opened.set()
            status = await process.wait()
        _log.warning("%s: closed", path)
        await asyncio.sleep(_PAUSE_SECONDS)
        while status == 0 and os.path.exists(path):
            await asyncio.sleep(_PAUSE_SECONDS)
