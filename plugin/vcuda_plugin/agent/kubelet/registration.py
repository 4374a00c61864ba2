"""Keeps one device plugin registered with the kubelet when either of them restarts."""

from __future__ import annotations

import asyncio
import logging
import os
import time
from typing import Any

import grpc.aio  # type: ignore[import-untyped]

from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system import files

from . import device_plugin_api as api
from . import socket_file
from .device_plugin import DevicePlugin

PLUGIN_DIR = "/var/lib/kubelet/device-plugins"
CHECK_SECONDS = 1.0
# A kubelet opens its device stream right after a registration and never reopens it by itself:
# without a stream for this time, register again. At once where a stream was open and has ended.
WATCH_SECONDS = 10.0
_REGISTER_SECONDS = 10.0
_LONGEST_PAUSE_SECONDS = 30.0
# How often a registration in progress checks that both sockets still exist. A kubelet that starts
# removes every socket in its folder, also that of a registration that began on the previous
# kubelet's socket; it then dials the missing one for 10 s before it answers (seen with 1.36).
_SOCKET_CHECK_SECONDS = 0.2

_log = logging.getLogger(__name__)


def is_any_served(folder: str) -> bool:
    """Whether an agent offers a resource in the kubelet's folder now."""
    names = os.listdir(folder) if os.path.isdir(folder) else []
    return any(
        socket_file.is_served(f"{folder}/{name}") for name in names if name.startswith("vcuda-")
    )


class Registration:
    """Serves `plugin` at <folder>/<kind>.sock under the resource's name.

    beside: another agent may serve there; then use another name and leave that socket alone. When
    an agent that served the other name has ended, register again: the kubelet may call that one.
    """

    def __init__(
        self, folder: str, resource: str, plugin: DevicePlugin, beside: bool = False
    ) -> None:
        self._folder, self._resource, self._plugin = folder, resource, plugin
        kind = f"vcuda-{plugin.kind.removeprefix('vcuda-')}"
        self._endpoint, other = f"{kind}.sock", f"{kind}-2.sock"
        if beside and socket_file.is_served(f"{folder}/{self._endpoint}"):
            self._endpoint, other = other, self._endpoint
        self._path, self._other = f"{folder}/{self._endpoint}", f"{folder}/{other}"
        self._beside = beside
        self._other_checks = 0  # until the end of the agent there counts
        self._none = f"{kind}-none.sock"
        self._server: Any = None
        self._inode = 0
        self._kubelet: tuple[int, ...] = ()
        self._watched_at = 0.0
        self._was_watched = False
        self._complaint = ""
        self._waits = False

    async def run(self) -> None:
        """Register, and again whenever needed, until cancelled; then remove the socket."""
        failed: tuple[int, ...] = ()
        pause, again_at = CHECK_SECONDS, 0.0
        try:
            while True:
                self._check_other()
                kubelet = socket_file.identity(f"{self._folder}/{api.KUBELET_SOCKET}")
                # Retry a kubelet that refused after growing pauses, a new kubelet at once.
                if kubelet != failed or time.monotonic() >= again_at:
                    try:
                        if not await self._ensure_registered(kubelet):
                            await asyncio.sleep(_SOCKET_CHECK_SECONDS)
                            continue
                        failed, pause, self._complaint = (), CHECK_SECONDS, ""
                    except (VcudaError, OSError, grpc.aio.AioRpcError) as error:
                        self._complain(error)
                        failed, pause = kubelet, min(2 * pause, _LONGEST_PAUSE_SECONDS)
                        again_at = time.monotonic() + pause
                # A kubelet that has just started rejects pods until it knows this plugin.
                known = self._plugin.streams or not self._plugin.ready
                await asyncio.sleep(CHECK_SECONDS if known else _SOCKET_CHECK_SECONDS)
        finally:
            await self._close()

    async def _ensure_registered(self, kubelet: tuple[int, ...]) -> bool:
        """Register if needed. Returns False if a socket changed meanwhile: try again at once.

        kubelet: identity of the kubelet's socket (see socket_file.identity); empty: there is none.
        """
        if not self._plugin.ready:
            return True
        if not kubelet:
            if not self._waits:
                _log.info("%s: waits for %s/%s", self._endpoint, self._folder, api.KUBELET_SOCKET)
            self._waits = True
            return True
        self._waits = False
        now = time.monotonic()
        if self._plugin.streams:
            self._watched_at, self._was_watched = now, True
        deserted = now - self._watched_at > WATCH_SECONDS
        deserted |= self._was_watched and not self._plugin.streams
        # A kubelet that starts removes every socket in its folder.
        served = self._server is not None and self._is_ours()
        if served and kubelet == self._kubelet and not deserted:
            return True
        if not served:
            await self._listen()
            if self._beside:
                # Be seen by the running agent before the kubelet calls this one instead.
                await asyncio.sleep(2 * CHECK_SECONDS)
        if not await self._register(kubelet, self._endpoint):
            return False
        self._kubelet, self._watched_at, self._was_watched = kubelet, time.monotonic(), False
        _log.info("%s: registered as %s", self._endpoint, self._resource)
        return True

    async def detach(self) -> None:
        """Once registered, make the kubelet independent of the agent that registered before.

        See hand_over.py.
        """
        while not (self._kubelet and self._plugin.streams):
            await asyncio.sleep(_SOCKET_CHECK_SECONDS)
        nothing = grpc.aio.server()
        path = f"{self._folder}/{self._none}"
        if not nothing.add_insecure_port(f"unix:{path}"):
            raise VcudaError("cannot listen", path, "run as root, with a shorter folder")
        await nothing.start()
        try:
            await self._register(self._kubelet, self._none)
            _log.warning("%s: the kubelet accepted a plugin without calls", self._none)
        except grpc.aio.AioRpcError:
            pass  # as intended
        finally:
            await nothing.stop(None)
            files.remove(path)

    @property
    def has_successor(self) -> bool:
        """Whether another agent serves the other name."""
        return socket_file.is_served(self._other)

    def _check_other(self) -> None:
        """Register again once another agent's socket has not been served for two checks: by then
        the kubelet has noticed the end of its stream."""
        if socket_file.is_served(self._other):
            self._other_checks = 2
        elif self._other_checks:
            self._other_checks -= 1
            if not self._other_checks:
                self._kubelet = ()

    def _is_same(self, kubelet: tuple[int, ...]) -> bool:
        """Whether neither our socket nor the kubelet's was replaced since."""
        now = socket_file.identity(f"{self._folder}/{api.KUBELET_SOCKET}")
        return self._is_ours() and now == kubelet

    async def _listen(self) -> None:
        await self._close()
        server = grpc.aio.server()
        server.add_generic_rpc_handlers((self._plugin.service(),))
        # Bind under another name, then rename: at its end gRPC removes the name that it bound,
        # which must not be the next server's socket.
        beside = f"{self._path}.new"
        before = os.umask(0o177)
        try:
            bound = server.add_insecure_port(f"unix:{beside}")
        except RuntimeError:
            bound = 0
        finally:
            os.umask(before)
        if not bound:
            raise VcudaError("cannot listen", self._path, "run as root, with a shorter folder")
        self._server = server
        await server.start()
        self._inode = os.stat(beside).st_ino
        os.rename(beside, self._path)

    async def _register(self, kubelet: tuple[int, ...], endpoint: str) -> bool:
        """Whether both sockets stayed the same; an interrupted registration is cancelled."""
        request = api.message("RegisterRequest")(
            version=api.VERSION,
            endpoint=endpoint,
            resource_name=self._resource,
            options=self._plugin.options(),
        )
        # Not every server accepts a path as the authority.
        options = [("grpc.default_authority", "localhost")]
        target = f"unix:{self._folder}/{api.KUBELET_SOCKET}"
        async with grpc.aio.insecure_channel(target, options=options) as channel:
            register = channel.unary_unary(
                api.REGISTER,
                request_serializer=lambda message: message.SerializeToString(),
                response_deserializer=api.message("Empty").FromString,
            )
            call = register(request, timeout=_REGISTER_SECONDS)
            answered = asyncio.ensure_future(call)
            try:
                while not answered.done():
                    await asyncio.wait({answered}, timeout=_SOCKET_CHECK_SECONDS)
                    if not answered.done() and not self._is_same(kubelet):
                        return False
                answered.result()
            finally:
                call.cancel()
                answered.cancel()
                await asyncio.wait({answered})
        return self._is_same(kubelet)

    async def _close(self) -> None:
        if self._server is not None:
            if self._is_ours():
                files.remove(self._path)
            server, self._server = self._server, None
            await server.stop(None)

    def _is_ours(self) -> bool:
        identity = socket_file.identity(self._path)
        return bool(identity) and identity[1] == self._inode

    def _complain(self, error: Exception) -> None:
        """Log an error, unless it is the same as the last one."""
        text = error.details() if isinstance(error, grpc.aio.AioRpcError) else str(error)
        if text != self._complaint:
            _log.warning("%s: cannot register: %s; trying again", self._endpoint, text)
        self._complaint = text
