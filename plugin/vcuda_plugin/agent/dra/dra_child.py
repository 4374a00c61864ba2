"""Agent side of the DRA driver: starts and restarts its process, sends it the node's GPUs."""

from __future__ import annotations

import asyncio
import json
import logging

from vcuda_oci.system.settings_file import Config

from ..gpus.inventory import Inventory
from ..process import child
from . import sockets

MODULE = "vcuda_plugin.agent.dra.dra_process"
_PAUSE_SECONDS = 2

_log = logging.getLogger(__name__)


class DraChild:
    """The driver as the agent sees it.

    kubelet: the kubelet's root folder. cdi_folder: of the specs of prepared claims. node_root: the
    node's name of the driver root, "": the same as here.
    """

    def __init__(
        self,
        settings: Config,
        node: str,
        kubeconfig: str,
        kubelet: str,
        cdi_folder: str,
        node_root: str,
    ) -> None:
        self._arguments = (node, kubeconfig, kubelet, cdi_folder, node_root)
        self._process: child.Child | None = None
        self._seen = b""
        self._kubelet, self._registered = kubelet, asyncio.Event()

    def publish(self, seen: Inventory) -> None:
        """Send the node's GPUs and their health."""
        self._seen = json.dumps(seen.tree()).encode() + b"\n"
        self._write()

    async def detach(self) -> None:
        """Wait until the kubelet calls this driver instead of the former agent's."""
        await self._registered.wait()

    def remove_sockets(self) -> None:
        """Remove what a killed driver left."""
        sockets.remove(self._kubelet)

    @property
    def has_successor(self) -> bool:
        """Whether another agent's driver runs beside this one."""
        return sockets.served_count(self._kubelet) > 1

    async def run(self) -> None:
        """Keep the process running until cancelled."""
        while True:
            async with child.running(MODULE, *self._arguments) as (self._process, output):
                self._write()
                while await output.readline():
                    self._registered.set()
                await self._process.wait()
            self._process = None
            _log.warning("the DRA driver has ended; starting it again")
            await asyncio.sleep(_PAUSE_SECONDS)

    def _write(self) -> None:
        if self._process is not None and self._seen:
            # If the process is just ending, this is lost; the next process gets it at its start.
            self._process.stdin.write(self._seen)
