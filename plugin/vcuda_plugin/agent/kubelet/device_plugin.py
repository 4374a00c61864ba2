"""The device plugin of one resource: answers the kubelet's calls from memory.

The kubelet calls from its only admission loop and sets no time limit. No call may therefore wait
for anything; only the stream of devices does.
"""

from __future__ import annotations

import asyncio
import logging
import os
from collections.abc import Sequence
from typing import Any

import grpc  # type: ignore[import-untyped]
import grpc.aio  # type: ignore[import-untyped]

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from . import device_plugin_api as api
from . import resources
from .messages import unary
from .resources import Device

_log = logging.getLogger(__name__)


class DevicePlugin:
    """The gRPC service of one resource.

    kind: one of CORE, MEMORY and GPU of `resources`. followed: whether the agent watches the pods.
    streams: number of device streams (ListAndWatch) that are open.
    """

    def __init__(self, kind: str, settings: Config, followed: bool) -> None:
        self.kind, self.streams = kind, 0
        self._state_dir, self._rules = os.path.normpath(settings.state_dir), rules_of(settings)
        self._split = settings.gpu_split
        self._allocate_as = resources.allocates_by(kind, self._split, followed)
        self._known: frozenset[str] = frozenset()
        self._list = b""
        self._gpus: Sequence[Gpu] = ()
        self._distances: Sequence[Sequence[int]] | None = None
        self._changed = asyncio.Event()

    @property
    def ready(self) -> bool:
        """Whether there is anything to offer."""
        return bool(self._known)

    def publish(
        self,
        devices: Sequence[Device],
        gpus: Sequence[Gpu],
        distances: Sequence[Sequence[int]] | None,
    ) -> None:
        """Offer these devices from now on. distances: between the GPUs, or None if unknown."""
        self._gpus, self._distances = gpus, distances
        message = api.message("ListAndWatchResponse")()
        for device in devices:
            health = api.HEALTHY if device.healthy else api.UNHEALTHY
            entry = message.devices.add(ID=device.id, health=health)
            if device.numa is not None:
                entry.topology.nodes.add(ID=device.numa)
        self._known = frozenset(device.id for device in devices)
        self._list = message.SerializeToString()
        self._changed.set()
        self._changed = asyncio.Event()

    def options(self) -> Any:
        """The plugin's options. A kubelet then never calls PreStartContainer."""
        return api.message("DevicePluginOptions")(
            pre_start_required=False, get_preferred_allocation_available=True
        )

    def service(self) -> Any:
        """The gRPC handler of the calls."""
        watch = grpc.unary_stream_rpc_method_handler(
            self._list_and_watch, request_deserializer=api.message("Empty").FromString
        )
        return grpc.method_handlers_generic_handler(
            api.DEVICE_PLUGIN,
            {
                "GetDevicePluginOptions": unary(self._get_options, api.message("Empty")),
                "ListAndWatch": watch,
                "GetPreferredAllocation": unary(
                    self._prefer, api.message("PreferredAllocationRequest")
                ),
                "Allocate": unary(self._allocate, api.message("AllocateRequest")),
            },
        )

    async def _get_options(self, request: Any, context: Any) -> Any:
        return self.options()

    async def _list_and_watch(self, request: Any, context: Any) -> None:
        """Send the whole list now and at each change; a slow reader skips intermediate lists."""
        self.streams += 1
        try:
            while True:
                changed = self._changed
                await context.write(self._list)
                await changed.wait()
        finally:
            self.streams -= 1

    async def _prefer(self, request: Any, context: Any) -> Any:
        answer = api.message("PreferredAllocationResponse")()
        for asked in request.container_requests:
            chosen = resources.preferred(
                self.kind,
                [id for id in asked.available_deviceIDs if id in self._known],
                [id for id in asked.must_include_deviceIDs if id in self._known],
                max(0, asked.allocation_size),
                self._rules,
                self._gpus,
                self._distances,
                self._split,
            )
            answer.container_responses.add(deviceIDs=chosen)
        return answer

    async def _allocate(self, request: Any, context: Any) -> Any:
        response = api.message("AllocateResponse")()
        for asked in request.container_requests:
            try:
                answer = resources.answer(
                    self._allocate_as, asked.devices_ids, self._known, self._state_dir
                )
            except VcudaError as error:
                _log.warning("%s", error)
                await context.abort(grpc.StatusCode.INVALID_ARGUMENT, str(error))
            source, destination = answer.mount
            try:
                # Some engines do not create a missing mount source.
                os.makedirs(source, 0o755, exist_ok=True)
            except OSError as error:
                _log.warning("%s: cannot be made: %s", source, error.strerror)
            entry = response.container_responses.add(annotations=answer.annotations)
            entry.mounts.add(container_path=destination, host_path=source, read_only=True)
        return response
