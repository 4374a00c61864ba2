"""What NVML says of this host's GPUs, a line every two seconds: a process of its own.

NVML can hang for as long as a broken GPU pleases, and then only this process hangs. Each line is a
JSON object: gpus (placement.Gpu's fields), numa (node by UUID), failing (reason by UUID), xids
([UUID, number] of each Xid event since the last line).
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import time
from typing import Any

from vcuda_oci import files, host
from vcuda_oci.errors import VcudaError

from . import parent

PERIOD_MS = 2000
_XID_CRITICAL = 8  # nvmlEventTypeXidCriticalError
_TIMEOUT = 10  # NVML_ERROR_TIMEOUT: no event came


class _EventData(ctypes.Structure):
    """nvmlEventData_t."""

    _fields_ = [
        ("device", ctypes.c_void_p),
        ("type", ctypes.c_ulonglong),
        ("data", ctypes.c_ulonglong),
        ("gpu_instance", ctypes.c_uint),
        ("compute_instance", ctypes.c_uint),
    ]


def main(driver_root: str, cache: str) -> None:
    """Until nobody reads, or NVML has to be opened anew."""
    parent.end_with_it()
    try:
        facts = host.load(driver_root, cache)
        library = facts.libraries.get("libnvidia-ml.so.1", "")
        probe, key = Probe(library, facts), host.gpus_key(facts.root, library)
        # NVML that is open knows of no other driver and no other GPUs: the next process does.
        while host.gpus_key(facts.root, library) == key:
            _say(probe.look(driver_root))
    except VcudaError as error:
        print(f"vcuda-node-agent: {error}", file=sys.stderr)
        time.sleep(PERIOD_MS / 1000)
    except BrokenPipeError:
        os._exit(0)  # nobody to tell


class Probe:
    """NVML, open. Raises VcudaError: it does not load or start."""

    def __init__(self, library: str, facts: host.Host) -> None:
        self.gpus: list[dict[str, Any]] = [gpu.__dict__ for gpu in facts.gpus]
        self._first = True
        try:
            self._nvml = ctypes.CDLL(library)
        except OSError as error:
            raise VcudaError(f"does not load: {error}", library, "reinstall the driver") from error
        self._nvml.nvmlErrorString.restype = ctypes.c_char_p
        status = self._nvml.nvmlInit_v2()
        if status:
            raise VcudaError(self._reason(status), library, "check the driver with nvidia-smi")
        self._events = ctypes.c_void_p()
        self._nvml.nvmlEventSetCreate(ctypes.byref(self._events))
        self._handles: dict[str, int] = {}

    def look(self, driver_root: str) -> dict[str, Any]:
        """Wait for events, then ask each GPU. The first look does not wait."""
        xids = [] if self._first else self._wait()
        self._first = False
        failing = {}
        for gpu in self.gpus:
            reason = self._ask(gpu["uuid"])
            if reason:
                failing[gpu["uuid"]] = reason
        numa = {gpu["uuid"]: _numa_node(driver_root, gpu["bus_id"]) for gpu in self.gpus}
        return {
            "gpus": self.gpus,
            "numa": {uuid: node for uuid, node in numa.items() if node >= 0},
            "failing": failing,
            "xids": xids,
        }

    def _ask(self, uuid: str) -> str:
        """Why the GPU does not answer; "": it does."""
        device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
        status = self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        if not status:
            if uuid not in self._handles:
                # Not every GPU has events: then its answers are all that is known.
                self._nvml.nvmlDeviceRegisterEvents(
                    device, ctypes.c_ulonglong(_XID_CRITICAL), self._events
                )
            self._handles[uuid] = device.value or 0
            status = self._nvml.nvmlDeviceGetMemoryInfo(device, memory)
        return self._reason(status) if status else ""

    def _wait(self) -> list[tuple[str, int]]:
        """The Xid events of the time until the next look."""
        xids, data = [], _EventData()
        end = time.monotonic() + PERIOD_MS / 1000
        while (left := end - time.monotonic()) > 0:
            wait = self._nvml.nvmlEventSetWait_v2
            status = wait(self._events, ctypes.byref(data), ctypes.c_uint(int(left * 1000)))
            if status == 0:
                uuids = [uuid for uuid, handle in self._handles.items() if handle == data.device]
                xids += [(uuid, data.data) for uuid in uuids if data.type == _XID_CRITICAL]
                break  # told at once; more come with the next look
            if status != _TIMEOUT:
                time.sleep(left)
        return xids

    def _reason(self, status: int) -> str:
        text: bytes = self._nvml.nvmlErrorString(status)
        return text.decode("utf-8", "replace")


def _numa_node(driver_root: str, bus_id: str) -> int:
    """The NUMA node of a PCI device; -1: the host does not say. Source: the kernel's sysfs."""
    path = f"{driver_root.rstrip('/')}/sys/bus/pci/devices/{bus_id}/numa_node"
    try:
        return int(files.read(path, 64, follow=True)) if bus_id else -1
    except (OSError, ValueError):
        return -1


def _say(look: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(look) + "\n")
    sys.stdout.flush()
