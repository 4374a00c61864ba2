"""GPU memory as NVML reports it: of processes, and what is free. For driver_worker.py."""

from __future__ import annotations

import ctypes

from vcuda_oci.host.nvml_structures import MOST_PROCESSES, NOT_AVAILABLE, Memory, Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

_UUID_BYTES = 96


class DriverMemory:
    """An open NVML. Raises OSError: it cannot be loaded, or does not start."""

    def __init__(self, path: str) -> None:
        self._nvml = ctypes.CDLL(path)
        if self._nvml.nvmlInit_v2():
            raise OSError(f"{path} does not start")

    def held(self, pids: Sequence[int]) -> dict[str, int]:
        """Bytes of these processes together, by UUID; without GPUs of which NVML has no figure."""
        found = {}
        for uuid, there in self._processes():
            own = [used for pid, used in there if pid in pids]
            if NOT_AVAILABLE not in own:
                found[uuid] = sum(own)
        return found

    def alone(self, pids: Sequence[int]) -> list[str]:
        """The UUIDs of the GPUs on which no other process computes."""
        return [uuid for uuid, there in self._processes() if all(pid in pids for pid, _ in there)]

    def free(self) -> dict[str, int]:
        """Bytes by UUID, of the GPUs that answer."""
        found, memory = {}, Memory()
        for uuid, device in self._devices():
            if not self._nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
                found[uuid] = int(memory.free)
        return found

    def _processes(self) -> Iterator[tuple[str, list[tuple[int, int]]]]:
        """By UUID, the pid and the bytes of each process that computes."""
        for uuid, device in self._devices():
            listed, count = (Process * MOST_PROCESSES)(), ctypes.c_uint(MOST_PROCESSES)
            lists = self._nvml.nvmlDeviceGetComputeRunningProcesses_v3
            if not lists(device, ctypes.byref(count), listed):
                yield uuid, [(each.pid, each.used_bytes) for each in listed[: count.value]]

    def _devices(self) -> Iterator[tuple[str, ctypes.c_void_p]]:
        count = ctypes.c_uint()
        if self._nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for index in range(count.value):
            device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
            if self._nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
                continue
            if not self._nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_UUID_BYTES)):
                yield uuid.value.decode(), device
