"""Read the processes on each GPU from NVML, and set the driver's own memory limits."""

from __future__ import annotations

import ctypes
import os
from collections.abc import Callable, Sequence
from typing import NamedTuple

from vcuda_oci.host.nvml import Library
from vcuda_oci.host.nvml_structures import MOST_PROCESSES, NOT_AVAILABLE, Process

NO_LIMIT = (1 << 64) - 1  # NVML_DEVICE_MEMORY_LIMIT_MAX
_COMPUTE = "nvmlDeviceGetComputeRunningProcesses"
_GRAPHICS = "nvmlDeviceGetGraphicsRunningProcesses"


class _Utilisation(ctypes.Structure):
    """nvmlProcessUtilizationSample_t."""

    _fields_ = [
        ("pid", ctypes.c_uint),
        ("stamp_us", ctypes.c_ulonglong),
        ("sm_percent", ctypes.c_uint),
        ("memory_percent", ctypes.c_uint),
        ("encoder_percent", ctypes.c_uint),
        ("decoder_percent", ctypes.c_uint),
    ]


class _Limits(ctypes.Structure):
    """nvmlSetMemoryLimits_v1_t."""

    _fields_ = [
        ("cgroup", ctypes.c_char_p),
        ("soft_bytes", ctypes.c_ulonglong),
        ("hard_bytes", ctypes.c_ulonglong),
    ]


class _Counted(ctypes.Structure):
    """nvmlGetMemoryLimits_v1_t."""

    _fields_ = [*_Limits._fields_, ("used_bytes", ctypes.c_ulonglong)]


class OnGpu(NamedTuple):
    """One process on one GPU. pid: on this host. memory_bytes: None if NVML does not know it.

    busy_percent: of the GPU's time since the last poll. computes: it has a CUDA context.
    """

    pid: int
    uuid: str
    memory_bytes: int | None
    busy_percent: int
    computes: bool


class ProcessProbe:
    """An open NVML library. Raises VcudaError: NVML does not load or start."""

    def __init__(self, library: str, uuids: Sequence[str]) -> None:
        self._uuids, self._seen_us = uuids, dict.fromkeys(uuids, 0)
        self._processes = (Process * MOST_PROCESSES)()
        self._utilisations = (_Utilisation * MOST_PROCESSES)()
        opened = Library(library)
        opened.ask("nvmlInit_v2")
        self._nvml, self._reason = opened.calls, opened.reason

    def poll(self) -> list[OnGpu]:
        """Return every process on every GPU that answers."""
        found = []
        for uuid in self._uuids:
            device = ctypes.c_void_p()
            if self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device)):
                continue
            drawing = self._list(_GRAPHICS, device)
            computing = self._list(_COMPUTE, device)
            pids = drawing.keys() | computing.keys()
            busy = self._busy(uuid, device) if pids else {}
            for pid in sorted(pids):
                # A process that computes and draws is in both lists with the same figure.
                memory = computing.get(pid, drawing.get(pid))
                found.append(OnGpu(pid, uuid, memory, busy.get(pid, 0), pid in computing))
        return found

    def set_limit(self, uuid: str, cgroup: str, hard_bytes: int) -> str:
        """Limit the GPU memory of a cgroup's processes in the driver; NO_LIMIT removes the limit.

        cgroup: its folder. Returns the reason if the driver refuses, else "".
        The soft limit is the hard one, so that the driver counts no process as one that borrows.
        Where the kernel has dmem it is 0: the driver adds a soft limit to each cgroup above, and
        when a runtime removes the container's cgroup it stays there.
        Source: nvml.h, nvmlDeviceSetMemoryLimits_v1, of driver 615 and later; NVIDIA's "MPS v3
        Memory Partitioning".
        """
        device = ctypes.c_void_p()
        is_soft = hard_bytes != NO_LIMIT and not os.path.exists(cgroup + "/dmem.min")
        function = self._function("nvmlDeviceSetMemoryLimits_v1")
        if function is None:
            return "the driver has no such limits"
        status = self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        if not status:
            limits = _Limits(os.fsencode(cgroup), hard_bytes if is_soft else 0, hard_bytes)
            status = function(device, ctypes.byref(limits))
        return self._reason(status) if status else ""

    def count(self, uuid: str, cgroup: str) -> int | None:
        """Return what the driver counts for a cgroup with a limit, in bytes; None: unknown."""
        device, counted = ctypes.c_void_p(), _Counted(os.fsencode(cgroup))
        function = self._function("nvmlDeviceGetMemoryLimits_v1")
        if function is None or self._nvml.nvmlDeviceGetHandleByUUID(
            uuid.encode(), ctypes.byref(device)
        ):
            return None
        return None if function(device, ctypes.byref(counted)) else int(counted.used_bytes)

    def _list(self, name: str, device: ctypes.c_void_p) -> dict[int, int | None]:
        """Return bytes by pid of the processes that an NVML function lists."""
        function = self._function(name + "_v3") or self._function(name + "_v2")
        count = ctypes.c_uint(MOST_PROCESSES)
        if function is None or function(device, ctypes.byref(count), self._processes):
            return {}
        found: dict[int, int | None] = {}
        for process in self._processes[: count.value]:
            used = process.used_bytes
            found[process.pid] = None if used == NOT_AVAILABLE else used
        return found

    def _busy(self, uuid: str, device: ctypes.c_void_p) -> dict[int, int]:
        """Return busy percent by pid since the last poll; {} if NVML has no new samples."""
        count = ctypes.c_uint(MOST_PROCESSES)
        since = ctypes.c_ulonglong(self._seen_us[uuid])
        get = self._nvml.nvmlDeviceGetProcessUtilization
        if get(device, self._utilisations, ctypes.byref(count), since):
            return {}
        found: dict[int, int] = {}
        for sample in self._utilisations[: count.value]:
            self._seen_us[uuid] = max(self._seen_us[uuid], sample.stamp_us)
            found[sample.pid] = max(found.get(sample.pid, 0), min(100, sample.sm_percent))
        return found

    def _function(self, name: str) -> Callable[..., int] | None:
        function: Callable[..., int] | None = getattr(self._nvml, name, None)
        return function
