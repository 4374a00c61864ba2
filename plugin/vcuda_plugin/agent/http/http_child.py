"""Agent side of the HTTP process: starts it, sends it the node's GPUs and a heartbeat."""

from __future__ import annotations

import asyncio
import contextlib
import json
import logging
import os

from vcuda_oci.system.settings_file import Config

from ...kube.node_gpus import NO_GPU, NodeGpus
from ..gpus.inventory import Inventory, Sensors
from ..process import child, rights
from . import event_counts, names_line

MODULE = "vcuda_plugin.agent.http.http_process"
_BEAT_SECONDS = 5
_PAUSE_SECONDS = 5
_LONGEST_PAUSE_SECONDS = 300
# Send nothing more to a process that leaves so many bytes unread.
_MOST_UNREAD = 4 << 20

_WAITS = NO_GPU + b"not registered yet beside the running agent\n"

_log = logging.getLogger(__name__)


def _create_folder(state_dir: str) -> None:
    """Create the folder of the event counts and give it to the HTTP process.

    The HTTP process cannot write to the state folder itself, which belongs to root.
    """
    folder = f"{state_dir}/{event_counts.FOLDER}"
    try:
        with contextlib.suppress(FileExistsError):
            os.mkdir(folder, 0o700)
        os.chown(folder, rights.HTTP_UID, rights.HTTP_UID, follow_symlinks=False)
    except OSError as error:
        _log.warning("%s: %s; events are counted anew after each start", folder, error.strerror)


class HttpChild:
    """The HTTP process as the agent sees it: starts it, restarts it, sends it lines.

    node: the node's name, as it stands in the metrics. waits: whether the agent waits for
    its registration beside another one, so that /readyz is not ready, until `end_wait`.
    """

    def __init__(self, settings: Config, node: str, waits: bool = False) -> None:
        self._settings, self._node, self._waits = settings, node, waits
        self._gpus = b""
        self._missing = NO_GPU + b"\n"
        self._names = b""
        self._stdin: asyncio.WriteTransport | None = None

    def send_gpus(self, seen: Inventory) -> None:
        """Send the node's GPUs and their health."""
        gpus = NodeGpus(
            [*seen.gpus, *seen.own],
            seen.numa,
            seen.unhealthy,
            _distances(seen),
            self._settings.memory_overcommit,
            seen.profiles,
        )
        self._gpus = gpus.dump().encode() + b"\n"
        self._send(self._gpus)

    def send_sensors(self, sensed: Sensors) -> None:
        """Send the GPUs' sensors; those sent before no longer count."""
        self._send(names_line.SENSORS + json.dumps(sensed).encode() + b"\n")

    def send_names(self, line: bytes) -> None:
        """Send the containers' names: see names_line."""
        self._names = line
        self._send(line)

    def end_wait(self) -> None:
        self._waits = False
        self._send_missing()

    def send_missing(self, why: str) -> None:
        """Send the reason why no GPU is found; "" once one is found."""
        self._missing = NO_GPU + why.replace("\n", " ").encode(errors="replace") + b"\n"
        self._send_missing()

    async def run(self) -> None:
        """Run the process forever; double the pause before each restart until one has served."""
        pause = _PAUSE_SECONDS
        while True:
            _create_folder(self._settings.state_dir)
            async with child.running(MODULE, self._node) as (process, output):
                self._stdin = process.stdin
                if await output.readline():
                    pause = _PAUSE_SECONDS
                    self._send(self._gpus)
                    self._send(self._names)
                    self._send_missing()
                    await self._beat(process)
                self._stdin = None
            _log.warning("%s: not served; trying again in %d s", self._settings.listen, pause)
            await asyncio.sleep(pause)
            pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    async def _beat(self, process: child.Child) -> None:
        """Send an empty line every _BEAT_SECONDS until the process ends."""
        while process.returncode is None:
            self._send(b"\n")
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(process.wait(), _BEAT_SECONDS)

    def _send_missing(self) -> None:
        self._send(_WAITS if self._waits else self._missing)

    def _send(self, line: bytes) -> None:
        stdin = self._stdin
        if stdin and line and stdin.get_write_buffer_size() < _MOST_UNREAD:
            stdin.write(line)


def _distances(seen: Inventory) -> list[list[int]] | None:
    """Between the GPUs and then the MIG devices of one container each, which are their GPU's."""
    uuids = [gpu.uuid for gpu in seen.gpus]
    if seen.distances is None or not all(gpu.parent in uuids for gpu in seen.own):
        return None if seen.own else seen.distances
    at = [*range(len(uuids)), *[uuids.index(gpu.parent) for gpu in seen.own]]
    return [[seen.distances[one][other] for other in at] for one in at]
