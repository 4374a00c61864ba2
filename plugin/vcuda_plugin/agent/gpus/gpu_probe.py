"""What NVML says of this host's GPUs, a line every two seconds: a process of its own.

NVML can hang for as long as a broken GPU pleases. Each GPU is asked in a thread of its own, so that
the others answer meanwhile; where NVML hangs for all, only this process does. Each line is a JSON
object: gpus (placement.Gpu's fields), driver and cuda (version and cuda of host.Host), distances
(see vcuda_oci.topology), numa (node by UUID), failing (reason by UUID), xids ([UUID, number] of
each Xid event since the last line), silent (why a GPU is none of these, by index). Where NVML
cannot be asked at all it is cannot alone, which says why, and the last line.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import threading
import time
from collections.abc import Callable
from typing import Any

from vcuda_oci import files, host, nvml
from vcuda_oci.errors import VcudaError
from vcuda_oci.nvml import HANGS

PERIOD_MS = 2000
# A GPU that has said nothing for so long hangs; together with the period less than what the agent
# waits for a line.
ANSWER_SECONDS = 2
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
    try:
        facts = host.load(driver_root, cache)
        library = facts.libraries.get("libnvidia-ml.so.1", "")
        probe, key = Probe(library, facts), host.gpus_key(facts.root, library)
        # NVML that is open knows of no other driver and no other GPUs: the next process does.
        while host.gpus_key(facts.root, library) == key:
            _say(probe.look())
            if probe.one_is_back:
                break
    except VcudaError as error:
        _say({"cannot": str(error)})
    except BrokenPipeError:
        os._exit(0)  # nobody to tell


class Probe:
    """NVML, open. Raises VcudaError: it does not load or start."""

    def __init__(self, library: str, facts: host.Host) -> None:
        self.gpus: list[dict[str, Any]] = [gpu.__dict__ for gpu in facts.gpus]
        self._facts = facts
        nodes = {gpu.uuid: _numa_node(facts.root, gpu.bus_id) for gpu in facts.gpus}
        self._numa = {uuid: node for uuid, node in nodes.items() if node >= 0}
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
        self._askers = {gpu.uuid: _Asker(self._ask, gpu.uuid) for gpu in facts.gpus}
        self._silent = [
            _Asker(lambda index: nvml.why_silent(library, int(index)), str(index))
            for index in facts.silent
        ]
        self.one_is_back = False  # a GPU that did not answer when its facts were asked

    def look(self) -> dict[str, Any]:
        """Wait for events, then ask each GPU. The first look does not wait."""
        xids = [] if self._first else self._wait()
        self._first = False
        for asker in (*self._askers.values(), *self._silent):
            asker.begin()
        end = time.monotonic() + ANSWER_SECONDS
        answers = {uuid: asker.answer(end) for uuid, asker in self._askers.items()}
        self.one_is_back = not all(asker.answer(end) for asker in self._silent)
        return {
            "gpus": self.gpus,
            "driver": self._facts.version,
            "cuda": self._facts.cuda,
            "distances": self._facts.distances,
            "numa": self._numa,
            "failing": {uuid: reason for uuid, reason in answers.items() if reason},
            "xids": xids,
            "silent": {index: error.what for index, error in self._facts.silent.items()},
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
                if data.type == _XID_CRITICAL:
                    whose = self._mig_devices_of(uuids, data.gpu_instance) or uuids
                    xids += [(uuid, data.data) for uuid in whose]
                break  # told at once; more come with the next look
            if status != _TIMEOUT:
                time.sleep(left)
        return xids

    def _mig_devices_of(self, uuids: list[str], instance: int) -> list[str]:
        """Those of this GPU instance of these GPUs; an event of a whole GPU is of none."""
        return [
            gpu.uuid
            for gpu in self._facts.gpus
            if gpu.mig and gpu.parent in uuids and gpu.mig[1] == instance
        ]

    def _reason(self, status: int) -> str:
        text: bytes = self._nvml.nvmlErrorString(status)
        return text.decode("utf-8", "replace")


class _Asker:
    """Asks for one GPU in a thread of its own, which may never come back."""

    def __init__(self, ask: Callable[[str], str], gpu: str) -> None:
        self._ask, self._gpu = ask, gpu
        self._asked, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        self._reason, self._hangs = "", False
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self) -> None:
        """Ask, unless the last answer is still awaited."""
        if self._answered.is_set():
            self._answered.clear()
            self._asked.set()

    def answer(self, end: float) -> str:
        """Why it does not answer, "" where it does; waits until `end`, unless it hangs anyway."""
        left = 0 if self._hangs else max(0, end - time.monotonic())
        self._hangs = not self._answered.wait(left)
        return HANGS if self._hangs else self._reason

    def _run(self) -> None:
        while True:
            self._asked.wait()
            self._asked.clear()
            self._reason = self._ask(self._gpu)
            self._answered.set()


def _numa_node(driver_root: str, bus_id: str) -> int:
    """The NUMA node of a PCI device; -1: the host does not say. Source: the kernel's sysfs."""
    path = f"{driver_root}/sys/bus/pci/devices/{bus_id}/numa_node"
    try:
        return int(files.read(path, 64, follow=True)) if bus_id else -1
    except (OSError, ValueError):
        return -1


def _say(look: dict[str, Any]) -> None:
    sys.stdout.write(json.dumps(look) + "\n")
    sys.stdout.flush()
