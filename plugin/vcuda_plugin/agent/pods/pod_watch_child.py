"""Agent side of the pod watcher: starts and restarts its process."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import importlib.util
import json
import logging
import os
import socket
import sys
from collections.abc import Callable

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files, settings_file
from vcuda_oci.system.settings_file import Config

from ... import dependencies
from ...kube import agent_lease
from ...kube.node_gpus import NodeGpus
from ..gpus.inventory import Inventory
from ..process import child
from . import node_metadata

# A pod that is admitted before its decision is known may get another GPU than the scheduler chose;
# but an unreachable API must not delay the node for long.
_KNOWN_SECONDS = 5
_PAUSE_SECONDS = 2
_END_SECONDS = 2
_ENDED = "the node agent has ended"
_WRITTEN = node_metadata.WRITTEN.encode()
MODULE = "vcuda_plugin.agent.pods.pod_watch"

_log = logging.getLogger(__name__)


def is_there(settings: Config, kubeconfig: str) -> bool:
    found = kubeconfig or os.environ.get("KUBERNETES_SERVICE_HOST")
    return settings.kubernetes == settings_file.AUTO and bool(found)


class Cluster:
    """Run the pod watcher and pass node metadata to it.

    kubeconfig: a file, or "". node: the node's name, or "" for the kubelet's default. Raises
    VcudaError if there is a cluster, but the Python client is not installed.
    """

    def __init__(self, settings: Config, kubeconfig: str, node: str) -> None:
        self._state_dir, self._overcommit = settings.state_dir, settings.memory_overcommit
        self._kubeconfig = kubeconfig
        self.node_name = node or os.environ.get("NODE_NAME") or socket.gethostname().lower()
        # Of the Lease. The extender reads it, and places nothing where DRA offers the GPUs.
        self._namespace = "" if settings.by_dra else os.environ.get("POD_NAMESPACE", "")
        self._known = asyncio.Event()
        self._process: child.Child | None = None
        self._metadata = ""
        self._node_gpus: NodeGpus | None = None
        self._labels: dict[str, str | None] = {}
        self._written = asyncio.Event()
        self.is_there = is_there(settings, kubeconfig)
        if self.is_there and importlib.util.find_spec("kubernetes") is None:
            hint = f'{dependencies.hint(["kubernetes"])}, or set kubernetes = "no"'
            raise VcudaError("no module kubernetes", sys.executable, hint)

    async def run(self) -> None:
        """Keep the pod watcher running until cancelled.

        Without a cluster, remove the decision folder, so that containers wait for no decision.
        """
        folder = f"{self._state_dir}/{names.DECISIONS}"
        if not self.is_there:
            files.remove_tree(folder)
            self._known.set()
            await asyncio.Event().wait()
        os.makedirs(folder, 0o755, exist_ok=True)
        while True:
            arguments = (self.node_name, self._kubeconfig, self._namespace)
            async with child.running(MODULE, *arguments) as (self._process, reports):
                self._write()
                while line := await reports.readline():
                    event = self._written if line.strip() == _WRITTEN else self._known
                    event.set()
                await self._process.wait()
            self._process = None
            _log.warning("pods of node %s: the watch has ended; starting it again", self.node_name)
            await asyncio.sleep(_PAUSE_SECONDS)

    async def beat(self, is_alive: Callable[[], bool]) -> None:
        """Have the node's Lease renewed as long as the agent is alive, until cancelled."""
        while self.is_there and self._namespace:
            if self._process is not None and is_alive():
                self._process.stdin.write(b"\n")
            await asyncio.sleep(agent_lease.RENEW_SECONDS if self._process else _PAUSE_SECONDS)

    async def known(self) -> None:
        """Wait until the decisions of this node's pods are known, at most _KNOWN_SECONDS."""
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._known.wait(), _KNOWN_SECONDS)

    def publish(self, seen: Inventory, labels: dict[str, str | None]) -> None:
        """Set the GPUs and labels to write on the node object. A label with None is removed."""
        self._node_gpus = NodeGpus(
            seen.gpus,
            seen.numa,
            seen.unhealthy,
            seen.distances,
            self._overcommit,
            seen.profiles,
            seen.places,
        )
        self._labels = labels
        self._put(self._node_gpus)

    async def publish_end(self) -> None:
        """Write on the node that no GPU can be had, since the kubelet rejects pods once this agent
        has ended; wait until that is written, at most _END_SECONDS.
        """
        if self._process is None or self._node_gpus is None:
            return
        unhealthy = {gpu.uuid: _ENDED for gpu in self._node_gpus.gpus}
        self._written.clear()
        self._put(dataclasses.replace(self._node_gpus, unhealthy=unhealthy))
        with contextlib.suppress(asyncio.TimeoutError):
            await asyncio.wait_for(self._written.wait(), _END_SECONDS)

    def _put(self, node_gpus: NodeGpus) -> None:
        annotations = {names.ANNOTATION_NODE_GPUS: node_gpus.dump()}
        self._metadata = json.dumps({"annotations": annotations, "labels": self._labels})
        self._write()

    def _write(self) -> None:
        if self._process is not None and self._metadata:
            # If the process is just ending, this is lost; the next process gets it at its start.
            self._process.stdin.write(self._metadata.encode() + b"\n")
