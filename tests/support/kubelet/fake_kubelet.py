"""A fake of the kubelet's device manager, over real sockets.

It follows Kubernetes 1.36 (pkg/kubelet/cm/devicemanager): at its start it removes every socket in
its folder. It dials a plugin that registers for up to ten seconds before it answers Register, asks
for its options, and watches its devices. It admits a container resource by resource, in any order,
with one Allocate each. It stores the answers in a checkpoint and uses them again, also after a
restart. The kubelet calls the newest registration, and keeps the streams of the others. When any
stream of a resource ends, the kubelet disconnects the newest client, whichever plugin that is, and
the resource's devices are unhealthy; without a client nothing happens. A registration that fails
leaves the resource without a client, but its devices as they were (plugin/v1beta1/handler.go).
"""

from __future__ import annotations

import contextlib
import functools
import json
import os
import random
import stat
import threading
from collections.abc import Callable, Mapping
from concurrent import futures
from typing import Any, NamedTuple

import grpc  # type: ignore[import-untyped]

api, services = grpc.protos_and_services("support/kubelet/device_plugin.proto")

CHECKPOINT = "kubelet_internal_checkpoint"
# A real kubelet's call has no deadline; here a hang must fail the test.
SECONDS = 30
# The time that the kubelet dials a plugin while the plugin waits for the answer to Register.
DIAL_SECONDS = 10
SOCKET_PATH_BYTES = 108  # sun_path of unix(7), with the NUL


class Device(NamedTuple):
    healthy: bool
    numa: tuple[int, ...] = ()


class Admitted(NamedTuple):
    """What the device plugins add to a container. mounts: (source, destination)."""

    annotations: dict[str, str]
    mounts: list[tuple[str, str]]


class Refused(Exception):
    """The pod is not admitted: UnexpectedAdmissionError."""


class Plugin:
    """The kubelet's end of one device plugin. Raises grpc's errors if it does not answer."""

    def __init__(self, folder: str, request: Any) -> None:
        self.options = request.options
        self.message_bytes = 0
        self.lists = 0
        # The authority that the kubelet's grpc-go sends.
        options = [("grpc.default_authority", "localhost")]
        self.channel = grpc.insecure_channel(f"unix:{folder}/{request.endpoint}", options=options)
        self.stub = services.DevicePluginStub(self.channel)
        try:
            grpc.channel_ready_future(self.channel).result(DIAL_SECONDS)
            self.stub.GetDevicePluginOptions(api.Empty(), timeout=SECONDS)
        except (grpc.FutureTimeoutError, grpc.RpcError):
            self.channel.close()
            raise

    def follow(
        self, listed: Callable[[dict[str, Device]], None], ended: Callable[[], None]
    ) -> None:
        self.watch = self.stub.ListAndWatch(api.Empty())
        threading.Thread(target=self._follow, args=(listed, ended), daemon=True).start()

    def _follow(
        self, listed: Callable[[dict[str, Device]], None], ended: Callable[[], None]
    ) -> None:
        with contextlib.suppress(grpc.RpcError, ValueError):
            for answer in self.watch:
                self.message_bytes = answer.ByteSize()
                listed(
                    {
                        device.ID: Device(
                            device.health == "Healthy",
                            tuple(node.ID for node in device.topology.nodes),
                        )
                        for device in answer.devices
                    }
                )
                self.lists += 1
        ended()

    def close(self) -> None:
        self.watch.cancel()
        self.channel.close()


class Kubelet:
    """`folder` is its folder of device plugin sockets."""

    def __init__(self, folder: str, seed: int = 0) -> None:
        self.folder, self.random = folder, random.Random(seed)
        self.plugins: dict[str, Plugin] = {}  # its endpoints: the plugins that it calls
        self._clients: dict[str, Plugin] = {}  # the newest of each resource, if any
        self._devices: dict[str, dict[str, Device]] = {}
        self.unhealthy = 0  # how often a resource's devices became unhealthy
        self.registrations: list[str] = []
        self._server: Any = None
        longest = f"{folder}/vcuda-memory.sock.new"
        assert len(longest) < SOCKET_PATH_BYTES, f"{longest}: too long for a socket's path"
        os.makedirs(folder, exist_ok=True)

    def start(self) -> None:
        for name in os.listdir(self.folder):
            path = os.path.join(self.folder, name)
            if stat.S_ISSOCK(os.lstat(path).st_mode):
                os.unlink(path)
        self._server = grpc.server(futures.ThreadPoolExecutor(4))
        services.add_RegistrationServicer_to_server(self, self._server)
        assert self._server.add_insecure_port(f"unix:{self.folder}/kubelet.sock")
        self._server.start()

    def stop(self) -> None:
        """End as a killed kubelet does; the checkpoint stays."""
        plugins = [*self.plugins.values()]
        self.plugins.clear()
        self._clients.clear()
        self._devices.clear()
        for plugin in plugins:
            plugin.close()
        if self._server is not None:
            self._server.stop(None).wait()
            self._server = None

    def Register(self, request: Any, context: Any) -> Any:
        if request.version != "v1beta1":
            context.abort(grpc.StatusCode.INVALID_ARGUMENT, "unsupported API version")
        name = request.resource_name
        try:
            plugin = Plugin(self.folder, request)
        except (grpc.FutureTimeoutError, grpc.RpcError):
            self._clients.pop(name, None)
            context.abort(grpc.StatusCode.UNKNOWN, "failed to dial device plugin")
        self.plugins[name] = self._clients[name] = plugin
        plugin.follow(functools.partial(self._devices.__setitem__, name), lambda: self._ended(name))
        self.registrations.append(name)
        return api.Empty()

    def _ended(self, name: str) -> None:
        newest = self._clients.pop(name, None)
        if newest is not None:
            newest.close()
            devices = self._devices.get(name, {})
            self._devices[name] = {id: Device(False, numa) for id, (_, numa) in devices.items()}
            self.unhealthy += 1

    def devices(self, resource: str) -> dict[str, Device]:
        return dict(self._devices.get(resource, {}))

    def healthy(self, resource: str) -> set[str]:
        return {id for id, device in self.devices(resource).items() if device.healthy}

    def admit(self, pod: str, container: str, wanted: Mapping[str, int]) -> Admitted:
        """Allocate a container's resources.

        Raises Refused; resources allocated before the refusal stay allocated, as with the kubelet.
        """
        resources = list(wanted)
        self.random.shuffle(resources)
        for resource in resources:
            if not self._held_ids(pod, container, resource):
                self._allocate(pod, container, resource, wanted[resource])
        annotations: dict[str, str] = {}
        mounts = []
        for resource in resources:
            answer = self._held_ids(pod, container, resource)
            annotations.update(answer["annotations"])
            mounts += [(source, place) for source, place in answer["mounts"]]
        return Admitted(annotations, sorted(mounts))

    def forget(self, pod: str) -> None:
        """Free the devices of a deleted pod."""
        self._write([entry for entry in self.checkpoint() if entry["pod"] != pod])

    def checkpoint(self) -> list[dict[str, Any]]:
        try:
            with open(os.path.join(self.folder, CHECKPOINT), encoding="utf-8") as file:
                entries: list[dict[str, Any]] = json.load(file)
                return entries
        except FileNotFoundError:
            return []

    def _allocate(self, pod: str, container: str, resource: str, count: int) -> None:
        taken = {
            id
            for entry in self.checkpoint()
            if entry["resource"] == resource
            for id in entry["ids"]
        }
        free = sorted(self.healthy(resource) - taken)
        if len(free) < count:
            raise Refused(f"requested {count} of {resource}, available {len(free)}")
        self.random.shuffle(free)
        plugin = self.plugins[resource]
        ids = free[:count]
        try:
            if plugin.options.get_preferred_allocation_available:
                ids = self._preferred(plugin, free, count)
            request = api.AllocateRequest(container_requests=[{"devices_ids": ids}])
            answer = plugin.stub.Allocate(request, timeout=SECONDS).container_responses[0]
        except grpc.RpcError as error:
            raise Refused(error.details()) from error
        entry = {
            "pod": pod,
            "container": container,
            "resource": resource,
            "ids": ids,
            "annotations": dict(answer.annotations),
            "mounts": [(mount.host_path, mount.container_path) for mount in answer.mounts],
        }
        self._write([*self.checkpoint(), entry])

    def _preferred(self, plugin: Plugin, free: list[str], count: int) -> list[str]:
        asked = {"available_deviceIDs": free, "allocation_size": count}
        request = api.PreferredAllocationRequest(container_requests=[asked])
        answer = plugin.stub.GetPreferredAllocation(request, timeout=SECONDS)
        preferred = list(answer.container_responses[0].deviceIDs)
        # The kubelet takes the preferred devices that are free, then other free ones.
        chosen = [id for id in dict.fromkeys(preferred) if id in free][:count]
        return chosen + [id for id in free if id not in chosen][: count - len(chosen)]

    def _held_ids(self, pod: str, container: str, resource: str) -> Any:
        key = (pod, container, resource)
        for entry in self.checkpoint():
            if (entry["pod"], entry["container"], entry["resource"]) == key:
                return entry
        return None

    def _write(self, entries: list[dict[str, Any]]) -> None:
        path = os.path.join(self.folder, CHECKPOINT)
        with open(path + ".new", "w", encoding="utf-8") as file:
            json.dump(entries, file)
        os.rename(path + ".new", path)
