"""A fake of the kubelet's plugin watcher and DRA manager, over real sockets.

It follows Kubernetes 1.36 (pkg/kubelet/pluginmanager, pkg/kubelet/cm/dra): it ignores sockets with
a leading dot, asks a new registration socket for its info, and calls the endpoint in that info.
"""

from __future__ import annotations

import os
from typing import Any

import grpc  # type: ignore[import-untyped]

from support.kubelet.fake_kubelet import SECONDS
from support.waiting import until

dra, dra_services = grpc.protos_and_services("support/kubelet/dra.proto")
health, health_services = grpc.protos_and_services("support/kubelet/dra_health.proto")
reg, reg_services = grpc.protos_and_services("support/kubelet/plugin_registration.proto")

_OPTIONS = [("grpc.default_authority", "localhost")]


class DraKubelet:
    """root: its folder, such as /var/lib/kubelet. info: the driver's, once it is registered."""

    def __init__(self, root: str) -> None:
        self.root = root
        self.info: Any = None
        self._channel: Any = None
        os.makedirs(f"{root}/plugins_registry", exist_ok=True)

    def sockets(self) -> list[str]:
        names = os.listdir(f"{self.root}/plugins_registry")
        return [name for name in names if not name.startswith(".")]

    def wait_sockets(self, count: int) -> list[str]:
        """The names of the registration sockets, once there are so many."""
        until(lambda: len(self.sockets()) == count)
        return self.sockets()

    def register(self, name: str = "") -> Any:
        """Register the driver with this registration socket, or the only one; return its info."""
        until(lambda: name in self.sockets() if name else bool(self.sockets()))
        if not name:
            (name,) = self.sockets()
        with grpc.insecure_channel(
            f"unix:{self.root}/plugins_registry/{name}", options=_OPTIONS
        ) as channel:
            stub = reg_services.RegistrationStub(channel)
            self.info = stub.GetInfo(reg.InfoRequest(), timeout=SECONDS, wait_for_ready=True)
            stub.NotifyRegistrationStatus(
                reg.RegistrationStatus(plugin_registered=True), timeout=SECONDS
            )
        self.close()
        # The kubelet keeps one connection, too.
        self._channel = grpc.insecure_channel(f"unix:{self.info.endpoint}", options=_OPTIONS)
        return self.info

    def prepare(self, *claims: tuple[str, str, str]) -> dict[str, Any]:
        """Prepare claims (namespace, name, uid); return the answers by uid."""
        return self._call("NodePrepareResources", claims)

    def unprepare(self, *claims: tuple[str, str, str]) -> dict[str, Any]:
        return self._call("NodeUnprepareResources", claims)

    def watch_health(self) -> Any:
        """The driver's health stream: iterate over the answers, or cancel it."""
        stub = health_services.DRAResourceHealthStub(self._channel)
        return stub.NodeWatchResources(health.NodeWatchResourcesRequest(), wait_for_ready=True)

    def _call(self, name: str, claims: tuple[tuple[str, str, str], ...]) -> dict[str, Any]:
        assert self.info is not None
        request = getattr(dra, f"{name}Request")()
        for namespace, claim, uid in claims:
            request.claims.add(namespace=namespace, name=claim, uid=uid)
        call = getattr(dra_services.DRAPluginStub(self._channel), name)
        return dict(call(request, timeout=SECONDS, wait_for_ready=True).claims)

    def close(self) -> None:
        if self._channel is not None:
            self._channel.close()
