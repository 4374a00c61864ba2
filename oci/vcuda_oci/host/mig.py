"""GPU instances by NVML: what a GPU can have and has, creation, destruction.

A container's instance is a GPU instance with one compute instance that takes all of it: one MIG
device. Source: nvml.h, "Multi Instance GPU Management".
"""

from __future__ import annotations

import ctypes
from collections.abc import Iterator

from ..model.errors import VcudaError
from ..model.mig import Layout, Profile
from .nvml import Library, each_mig_device
from .nvml_structures import Memory

_SUCCESS, _NOT_FOUND, _IN_USE, _INSUFFICIENT_RESOURCES = 0, 6, 19, 23
_ENABLED = 1
# Of NVML_GPU_INSTANCE_PROFILE_*; the rest is of graphics and media, which no request asks for.
_PLAIN = (0, 1, 2, 3, 4, 5, 6, 9)
_PROFILES = 0x12
# NVML_COMPUTE_INSTANCE_PROFILE_* by slices.
_COMPUTE = {1: 0, 2: 1, 3: 2, 4: 3, 7: 4, 8: 5, 6: 6}
_MOST = 16  # instances of a GPU: hardware has 7


class _Placement(ctypes.Structure):
    """nvmlGpuInstancePlacement_t."""

    _fields_ = [("start", ctypes.c_uint), ("size", ctypes.c_uint)]


class _ProfileInfo(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_t."""

    _fields_ = [
        ("id", ctypes.c_uint),
        ("p2p", ctypes.c_uint),
        ("slices", ctypes.c_uint),
        ("instances", ctypes.c_uint),
        ("rest", ctypes.c_uint * 6),
        ("memory_mib", ctypes.c_ulonglong),
    ]


class _NamedProfileInfo(ctypes.Structure):
    """nvmlGpuInstanceProfileInfo_v2_t."""

    _fields_ = [
        ("version", ctypes.c_uint),
        ("plain", ctypes.c_uint * 10),
        ("memory_mib", ctypes.c_ulonglong),
        ("name", ctypes.c_char * 96),
    ]


class _ComputeProfileInfo(ctypes.Structure):
    """nvmlComputeInstanceProfileInfo_t."""

    _fields_ = [("id", ctypes.c_uint), ("rest", ctypes.c_uint * 8)]


class _InstanceInfo(ctypes.Structure):
    """nvmlGpuInstanceInfo_t."""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("id", ctypes.c_uint),
        ("profile", ctypes.c_uint),
        ("placement", _Placement),
    ]


class Instance:
    """A GPU instance that exists. uuid: of its MIG device; "": it has no compute instance."""

    def __init__(self, handle: ctypes.c_void_p, info: _InstanceInfo, uuid: str) -> None:
        self.handle, self.uuid = handle, uuid
        self.id, self.profile = int(info.id), int(info.profile)
        self.start, self.width = int(info.placement.start), int(info.placement.size)


class InUse(VcudaError):
    """A process uses the instance."""


class Mig:
    """An open NVML. Raises VcudaError: it cannot be loaded, or a call fails."""

    def __init__(self, library: str) -> None:
        self._nvml, self._path = Library(library), library

    def __enter__(self) -> Mig:
        self._nvml.ask("nvmlInit_v2")
        return self

    def __exit__(self, *_: object) -> None:
        self._nvml.ask("nvmlShutdown")

    def layout(self, uuid: str) -> Layout:
        """The plain profiles of a GPU, and the places that instances have, of any profile."""
        device, memory = self._device(uuid), Memory()
        self._nvml.ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
        known = list(self._profiles(device))
        profiles = [self._profile(device, at, info) for at, info in known if at in _PLAIN]
        taken = [(one.profile, one.start, one.width) for one in self._instances(device, known)]
        return Layout(uuid, memory.total, profiles, taken)

    def instances(self, uuid: str) -> list[Instance]:
        """All GPU instances of a GPU; [] if it is not in MIG mode, or not here any more."""
        device = ctypes.c_void_p()
        name = ctypes.c_char_p(uuid.encode())
        status = self._nvml.status("nvmlDeviceGetHandleByUUID", name, ctypes.byref(device))
        mode, pending = ctypes.c_uint(), ctypes.c_uint()
        if status == _NOT_FOUND:
            return []
        self._nvml.ask("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending))
        if mode.value != _ENABLED:
            return []
        return self._instances(device, list(self._profiles(device)))

    def create(self, uuid: str, profile: Profile, start: int) -> ctypes.c_void_p:
        """Create a GPU instance at a place; return its handle.

        Raises VcudaError: the driver refuses, as where the place is taken.
        """
        instance, place = ctypes.c_void_p(), _Placement(start, profile.width)
        self._require(
            f"{profile.name} at {start} of {uuid}",
            "nvmlDeviceCreateGpuInstanceWithPlacement",
            self._device(uuid),
            ctypes.c_uint(profile.id),
            ctypes.byref(place),
            ctypes.byref(instance),
        )
        return instance

    def add_compute(self, instance: ctypes.c_void_p, profile: Profile) -> None:
        """Create the compute instance that takes all of a GPU instance. Raises VcudaError."""
        info, compute = _ComputeProfileInfo(), ctypes.c_void_p()
        name = ctypes.c_uint(_COMPUTE[profile.slices])
        self._require(
            profile.name,
            "nvmlGpuInstanceGetComputeInstanceProfileInfo",
            *(instance, name, ctypes.c_uint(0), ctypes.byref(info)),
        )
        self._require(
            profile.name,
            "nvmlGpuInstanceCreateComputeInstance",
            *(instance, ctypes.c_uint(info.id), ctypes.byref(compute)),
        )

    def destroy(self, instance: Instance) -> None:
        """Destroy a GPU instance, its compute instances first. Raises InUse, VcudaError."""
        for compute in self._computes(instance.handle):
            self._require(instance.uuid, "nvmlComputeInstanceDestroy", compute)
        self._require(str(instance.id), "nvmlGpuInstanceDestroy", instance.handle)

    def _require(self, what: str, function: str, *arguments: object) -> None:
        """Raises VcudaError with a hint for what drivers refuse."""
        status = self._nvml.status(function, *arguments)
        if status == _IN_USE:
            raise InUse(f"{function}: {what}: in use", self._path, "end the processes that use it")
        if status == _INSUFFICIENT_RESOURCES:
            hint = "see 'nvidia-smi mig -lgi': another program may have taken the place"
            raise VcudaError(f"{function}: {what}: no room", self._path, hint)
        if status != _SUCCESS:
            hint = "see 'nvidia-smi mig -lgi' and the kernel's log"
            raise VcudaError(f"{function}: {what}: NVML error {status}", self._path, hint)

    def _device(self, uuid: str) -> ctypes.c_void_p:
        device, name = ctypes.c_void_p(), ctypes.c_char_p(uuid.encode())
        self._nvml.ask("nvmlDeviceGetHandleByUUID", name, ctypes.byref(device))
        return device

    def _profiles(self, device: ctypes.c_void_p) -> Iterator[tuple[int, _ProfileInfo]]:
        """Each profile that the GPU has, with its number among NVML's."""
        for at in range(_PROFILES):
            info = _ProfileInfo()
            call = "nvmlDeviceGetGpuInstanceProfileInfo"
            if self._nvml.status(call, device, ctypes.c_uint(at), ctypes.byref(info)) == _SUCCESS:
                yield at, info

    def _profile(self, device: ctypes.c_void_p, number: int, info: _ProfileInfo) -> Profile:
        count, call = ctypes.c_uint(), "nvmlDeviceGetGpuInstancePossiblePlacements_v2"
        id = ctypes.c_uint(info.id)
        self._require(str(info.id), call, device, id, None, ctypes.byref(count))
        places = (_Placement * count.value)()
        self._require(str(info.id), call, device, id, places, ctypes.byref(count))
        name = self._name(device, number, info)
        starts = [place.start for place in places[: count.value]]
        width = places[0].size if count.value else 0
        return Profile(
            info.id, name, info.slices, info.memory_mib << 20, starts, width, info.instances
        )

    def _name(self, device: ctypes.c_void_p, number: int, info: _ProfileInfo) -> str:
        """The profile's name, "1g.10gb"; drivers before 525 do not report it."""
        named = _NamedProfileInfo(version=ctypes.sizeof(_NamedProfileInfo) | 2 << 24)
        call = "nvmlDeviceGetGpuInstanceProfileInfoV"
        if self._nvml.supports(call, device, ctypes.c_uint(number), ctypes.byref(named)):
            return bytes(named.name).decode().replace("MIG ", "")
        return f"{info.slices}g.{-(-info.memory_mib >> 10)}gb"

    def _instances(
        self, device: ctypes.c_void_p, profiles: list[tuple[int, _ProfileInfo]]
    ) -> list[Instance]:
        uuids, found = dict(each_mig_device(self._nvml, device, self._of_mig_device)), []
        for id in dict.fromkeys([info.id for _, info in profiles]):
            handles, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint()
            call = "nvmlDeviceGetGpuInstances"
            self._require(str(id), call, device, ctypes.c_uint(id), handles, ctypes.byref(count))
            for handle in handles[: count.value]:
                info, one = _InstanceInfo(), ctypes.c_void_p(handle)
                if not self._nvml.status("nvmlGpuInstanceGetInfo", one, ctypes.byref(info)):
                    found.append(Instance(one, info, uuids.get(info.id, "")))
        return found

    def _of_mig_device(self, mig: ctypes.c_void_p, _: int) -> tuple[int, str]:
        """GPU instance and UUID of a MIG device."""
        instance, uuid = ctypes.c_uint(), ctypes.create_string_buffer(96)
        self._nvml.ask("nvmlDeviceGetUUID", mig, uuid, ctypes.c_uint(96))
        self._nvml.ask("nvmlDeviceGetGpuInstanceId", mig, ctypes.byref(instance))
        return instance.value, uuid.value.decode()

    def _computes(self, instance: ctypes.c_void_p) -> list[ctypes.c_void_p]:
        found = []
        for profile in range(max(_COMPUTE.values()) + 3):
            info, shared = _ComputeProfileInfo(), ctypes.c_uint(0)
            call = "nvmlGpuInstanceGetComputeInstanceProfileInfo"
            number = ctypes.c_uint(profile)
            if self._nvml.status(call, instance, number, shared, ctypes.byref(info)) != _SUCCESS:
                continue
            handles, count = (ctypes.c_void_p * _MOST)(), ctypes.c_uint()
            self._require(
                str(info.id),
                "nvmlGpuInstanceGetComputeInstances",
                *(instance, ctypes.c_uint(info.id), handles, ctypes.byref(count)),
            )
            found += [ctypes.c_void_p(handle) for handle in handles[: count.value]]
        return found
