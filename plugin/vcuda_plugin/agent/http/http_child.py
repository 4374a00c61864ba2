"""Keeps the HTTP process running, and tells it what the agent knows: GPUs, and that it lives."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
from typing import TYPE_CHECKING

from vcuda_oci import config

from ...kube.node_gpus import NO_GPU, NodeGpus
from ..process import child, rights
from . import event_counts

if TYPE_CHECKING:
    from vcuda_oci.config import Config

    from ..gpus.inventory import Inventory

MODULE = "vcuda_plugin.agent.http.http_process"
_BEAT_SECONDS = 5
_PAUSE_SECONDS = 5
_LONGEST_PAUSE_SECONDS = 300
# A process that reads nothing is told no more.
_MOST_UNREAD = 4 << 20

_log = logging.getLogger(__name__)


def _give_folder(state_dir: str) -> None:
    """The HTTP process keeps its counts in a folder of its own: the state folder is root's."""
    folder = f"{state_dir}/{event_counts.FOLDER}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        os.chown(folder, rights.HTTP_UID, rights.HTTP_UID, follow_symlinks=False)
    except OSError as error:
        _log.warning("%s: %s; events are counted anew after each start", folder, error.strerror)


class HttpChild:
    """node: the node's name, as figures carry it."""

    def __init__(self, settings: Config, node: str) -> None:
        self._settings, self._node = settings, node
        self._gpus = b""
        self._missing = b""
        self._ear: asyncio.WriteTransport | None = None

    def tell(self, seen: Inventory) -> None:
        overcommit = self._settings.memory_overcommit
        gpus = NodeGpus(seen.gpus, seen.numa, seen.unhealthy, seen.distances, overcommit)
        self._gpus = gpus.dump().encode() + b"\n"
        self._say(self._gpus)

    def tell_missing(self, why: str) -> None:
        """why: no GPU is found; "": one is."""
        self._missing = NO_GPU + why.replace("\n", " ").encode(errors="replace") + b"\n"
        self._say(self._missing)

    async def keep(self) -> None:
        """Start it again when it ends: soon if it had served, else later each time."""
        pause = _PAUSE_SECONDS
        settings = self._settings
        exemplars = config.YES if settings.exemplars else config.NO
        arguments = (settings.listen, self._node, settings.state_dir, exemplars)
        while True:
            _give_folder(settings.state_dir)
            server = child.running(MODULE, *arguments)
            async with server as (process, said):
                self._ear = process.stdin
                if await said.readline():
                    pause = _PAUSE_SECONDS
                    self._say(self._gpus)
                    self._say(self._missing)
                    await self._beat(process)
                self._ear = None
            _log.warning("%s: not served; trying again in %d s", self._settings.listen, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _beat(self, process: child.Child) -> None:
        """Until it ends."""
        while process.returncode is None:
            self._say(b"\n")
            try:
                await asyncio.wait_for(process.wait(), _BEAT_SECONDS)
            except asyncio.TimeoutError:
                pass

    def _say(self, line: bytes) -> None:
        ear = self._ear
        if ear and line and ear.get_write_buffer_size() < _MOST_UNREAD:
            ear.write(line)
