"""Tells the kubelet how healthy the devices are: it writes that to the status of their pods.

The kubelet asks once and reads a stream. What is older than TIMEOUT_SECONDS counts as unknown, and
the end of another driver's stream, as in a rollout, makes it forget all devices: so the whole list
is sent again in between. Source: k8s.io/kubelet/pkg/apis/dra-health/v1alpha1, api.proto; Kubernetes
1.36, pkg/kubelet/cm/dra/healthinfo.go, gate ResourceHealthStatus.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping
from typing import Any

import grpc  # type: ignore[import-untyped]

from vcuda_oci.model.gpu import Gpu

from ..gpus.inventory import Inventory
from . import devices, mig_places, withheld
from . import dra_api as api

RESEND_SECONDS, TIMEOUT_SECONDS = 10.0, 30
HEALTHY, UNHEALTHY = 1, 2


class HealthStream:
    """The health of the devices in the pool of `node`. Serves one reader, the latest.

    has_mps: whether GPUs are devices for MPS too.
    """

    def __init__(self, node: str, has_mps: bool = False) -> None:
        self._node, self._has_mps = node, has_mps
        # Why each device is unhealthy, "": it is healthy. None: not known yet.
        self._reasons: dict[str, str] | None = None
        self._changed = threading.Condition()
        self._version = 0
        self._reader: object = None

    def publish(self, seen: Inventory) -> None:
        """Take the GPUs' health; a GPU that is only withheld is healthy. A place of a GPU instance
        has its GPU's health."""
        reasons = {
            name: _reason(seen.unhealthy, gpu.uuid)
            for gpu in seen.gpus
            for name in self._names(gpu, seen)
        }
        with self._changed:
            if reasons != self._reasons:
                self._reasons = reasons
                self._wake()

    def _names(self, gpu: Gpu, seen: Inventory) -> list[str]:
        if gpu.divided:
            return mig_places.names_of(gpu, seen)
        ends = ("", devices.MPS_END) if self._has_mps and gpu.mig is None else ("",)
        return [devices.name_of(gpu.uuid, end) for end in ends]

    def service(self) -> Any:
        """The gRPC handler of the kubelet's call."""
        watch = grpc.unary_stream_rpc_method_handler(
            self._watch,
            request_deserializer=api.message("NodeWatchResourcesRequest").FromString,
            response_serializer=lambda answer: answer.SerializeToString(),
        )
        return grpc.method_handlers_generic_handler(
            api.HEALTH_SERVICE, {"NodeWatchResources": watch}
        )

    def _watch(self, request: Any, context: Any) -> Iterator[Any]:
        mine = object()
        with self._changed:
            self._reader = mine
            self._wake()  # the former reader's thread ends
        context.add_callback(self._wake)
        while True:
            with self._changed:
                if self._reader is not mine or not context.is_active():
                    return
                version, reasons = self._version, self._reasons
            if reasons is not None:
                yield self._answer(reasons)
            with self._changed:
                if self._version == version:
                    self._changed.wait(RESEND_SECONDS)

    def _answer(self, reasons: Mapping[str, str]) -> Any:
        answer, now = api.message("NodeWatchResourcesResponse")(), int(time.time())
        for name, reason in sorted(reasons.items()):
            answer.devices.add(
                device={"pool_name": self._node, "device_name": name},
                health=UNHEALTHY if reason else HEALTHY,
                last_updated_time=now,
                health_check_timeout_seconds=TIMEOUT_SECONDS,
                message=reason,
            )
        return answer

    def _wake(self) -> None:
        with self._changed:  # again, where the caller has it
            self._version += 1
            self._changed.notify_all()


def _reason(unhealthy: Mapping[str, str], uuid: str) -> str:
    reason = unhealthy.get(uuid, "")
    return "" if reason in (withheld.OF_CLAIMS, withheld.OF_PLUGIN) else reason
