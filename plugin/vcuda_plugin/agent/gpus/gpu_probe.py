"""The GPU probe: a process that samples the GPUs through NVML and prints a line every two seconds.

A broken GPU can make an NVML call hang forever. Each GPU is therefore queried in its own thread, so
that the others still answer; and if NVML hangs for all GPUs, only this process hangs. A thread also
destroys the GPU instances of released shares: no process with a claim socket may run beside it.

Each line is a JSON object:
  gpus        list of the fields of model.gpu.Gpu
  driver      version of host.Host
  cuda        cuda of host.Host
  distances   see vcuda_oci.model.topology
  numa        NUMA node by UUID
  profiles    by UUID, of GPUs in MIG mode: the fields of each model.mig.Profile
  places      by UUID, of these: the places of their instances, as model.mig.Layout has them
  own         UUIDs in gpus of MIG devices that were made for one container each
  failing     reason by UUID, of GPUs that do not answer
  xids        [UUID, number] of each Xid event since the last line
  silent      reason by index, of GPUs that did not answer at first and are not in gpus
  sensors     figures by UUID (see sensors.py), of the period before
The last line is {"changed": true} if NVML has to be opened again, or {"cannot": reason} if NVML
cannot be used at all.
"""

from __future__ import annotations

import contextlib
import ctypes
import json
import os
import threading
import time
from collections.abc import Callable
from functools import partial
from typing import Any

from vcuda_oci.host import host, nvml
from vcuda_oci.host.mig import Mig
from vcuda_oci.host.nvml import HANGS, Library
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.mig import Layout
from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from . import own_instances, sensors

PERIOD_MS = 2000
# A GPU that does not answer within this time hangs. This and the period together must be less than
# inventory.LIMIT_SECONDS, the time that the agent waits for a line.
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


def main(settings: Config) -> None:
    """Print samples until the reader ends, or until NVML has to be opened again."""
    state_dir = settings.state_dir
    cache = state_dir + "/host.json"
    try:
        facts = host.load(settings.driver_root, cache)
        library = facts.library
        own, probe = own_instances.uuids(state_dir, facts), Probe(library, facts)
        left_over = _Query(partial(own_instances.end_left_over, state_dir, library))
        # An open NVML does not see a new driver or new GPUs, and a MIG device that takes the number
        # of another has another UUID. End: the next process sees them.
        while facts.has_these_gpus(cache):
            left_over.begin()
            _print({**probe.sample(), "own": own})
            if probe.one_is_back:
                break
        _print({"changed": True})
    except VcudaError as error:
        _print({"cannot": str(error)})
    except BrokenPipeError:
        os._exit(0)  # the agent has ended


class Probe:
    """An open NVML and one thread per GPU. Raises VcudaError: NVML does not load or start."""

    def __init__(self, library: str, facts: host.Host) -> None:
        self.gpus: list[dict[str, Any]] = [gpu.__dict__ for gpu in facts.gpus]
        self._facts = facts
        nodes = {gpu.uuid: _numa_node(facts.root, gpu.bus_id) for gpu in facts.gpus}
        self._numa = {uuid: node for uuid, node in nodes.items() if node >= 0}
        self._layouts = _layouts(library, facts)
        self._first = True
        opened = Library(library)
        opened.ask("nvmlInit_v2")
        self._nvml, self._reason = opened.calls, opened.reason
        self._events = ctypes.c_void_p()
        self._nvml.nvmlEventSetCreate(ctypes.byref(self._events))
        self._handles: dict[str, int] = {}
        self._queries = {gpu.uuid: _Query(partial(self._ask, gpu.uuid)) for gpu in facts.gpus}
        # Apart from the queries, and never waited for: no sensor decides about a GPU's health.
        self._sensors = {gpu.uuid: _Query(partial(self._sense, gpu.uuid), {}) for gpu in facts.gpus}
        self._silent = [_Query(partial(nvml.why_silent, library, at)) for at in facts.silent]
        self.one_is_back = False  # whether a GPU of facts.silent answers now

    def sample(self) -> dict[str, Any]:
        """Wait for events, then query each GPU. The first sample does not wait."""
        xids = [] if self._first else self._wait()
        self._first = False
        for query in (*self._queries.values(), *self._silent):
            query.begin()
        sensed = {uuid: query.last for uuid, query in self._sensors.items()}
        for query in self._sensors.values():
            query.begin()
        end = time.monotonic() + ANSWER_SECONDS
        answers = {uuid: query.answer(end) for uuid, query in self._queries.items()}
        self.one_is_back = not all(query.answer(end) for query in self._silent)
        return {
            "gpus": self.gpus,
            "driver": self._facts.version,
            "cuda": self._facts.cuda,
            "distances": self._facts.distances,
            "numa": self._numa,
            "profiles": {
                layout.uuid: [profile.fields() for profile in layout.profiles]
                for layout in self._layouts
            },
            "places": {layout.uuid: layout.taken for layout in self._layouts},
            "failing": {uuid: reason for uuid, reason in answers.items() if reason},
            "xids": xids,
            "silent": {index: error.what for index, error in self._facts.silent.items()},
            "sensors": {uuid: figures for uuid, figures in sensed.items() if not answers[uuid]},
        }

    def _sense(self, uuid: str) -> dict[str, float]:
        device = self._handles.get(uuid)
        return sensors.read(self._nvml, device) if device else {}

    def _ask(self, uuid: str) -> str:
        """Query the GPU; return why it does not answer, "" if it does."""
        device, memory = ctypes.c_void_p(), (ctypes.c_ulonglong * 3)()
        status = self._nvml.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        if not status:
            if uuid not in self._handles:
                # Fails on a GPU without events; its health is then known from its answers only.
                self._nvml.nvmlDeviceRegisterEvents(
                    device, ctypes.c_ulonglong(_XID_CRITICAL), self._events
                )
            self._handles[uuid] = device.value or 0
            status = self._nvml.nvmlDeviceGetMemoryInfo(device, memory)
        return self._reason(status) if status else ""

    def _wait(self) -> list[tuple[str, int]]:
        """Wait one period or until an Xid event; return the events as (UUID, number)."""
        xids, data = [], _EventData()
        end = time.monotonic() + PERIOD_MS / 1000
        while (left := end - time.monotonic()) > 0:
            wait = self._nvml.nvmlEventSetWait_v2
            status = wait(self._events, ctypes.byref(data), ctypes.c_uint(int(left * 1000)))
            if status == 0:
                uuids = [uuid for uuid, handle in self._handles.items() if handle == data.device]
                if data.type == _XID_CRITICAL:
                    affected = self._mig_devices_of(uuids, data.gpu_instance) or uuids
                    xids += [(uuid, data.data) for uuid in affected]
                break  # report it at once; further events are in the next sample
            if status != _TIMEOUT:
                time.sleep(left)
        return xids

    def _mig_devices_of(self, uuids: list[str], instance: int) -> list[str]:
        """The MIG devices on this GPU instance of these GPUs; none for an event of a whole GPU."""
        return [
            gpu.uuid
            for gpu in self._facts.gpus
            if gpu.mig and gpu.parent in uuids and gpu.mig[1] == instance
        ]


class _Query:
    """Queries one GPU in its own thread, which may hang forever."""

    def __init__(self, ask: Callable[[], Any], last: Any = "") -> None:
        """last: what counts as the answer before the first one."""
        self._ask, self.last = ask, last
        self._requested, self._answered = threading.Event(), threading.Event()
        self._answered.set()
        self._hangs = False
        threading.Thread(target=self._run, daemon=True).start()

    def begin(self) -> None:
        """Start a query, unless the last one is still running."""
        if self._answered.is_set():
            self._hangs = False
            self._answered.clear()
            self._requested.set()

    def answer(self, end: float) -> str:
        """Return why the GPU does not answer, "" if it does.

        Waits until `end`, but not at all for a query that hung in the last sample already.
        """
        left = 0 if self._hangs else max(0, end - time.monotonic())
        self._hangs = not self._answered.wait(left)
        return HANGS if self._hangs else str(self.last)

    def _run(self) -> None:
        while True:
            self._requested.wait()
            self._requested.clear()
            self.last = self._ask()
            self._answered.set()


def _layouts(library: str, facts: host.Host) -> list[Layout]:
    """The GPUs in MIG mode that have profiles; a driver that does not answer has none."""
    found: list[Layout] = []
    if facts.has_divided:
        with contextlib.suppress(VcudaError), Mig(library) as driver:
            for gpu in facts.gpus:
                if gpu.divided:
                    found.append(driver.layout(gpu.uuid))
    return [layout for layout in found if layout.profiles]


def _numa_node(driver_root: str, bus_id: str) -> int:
    """The NUMA node of a PCI device; -1 if unknown. Source: the kernel's sysfs."""
    path = f"{driver_root}/sys/bus/pci/devices/{bus_id}/numa_node"
    try:
        return int(files.read(path, 64, follow=True)) if bus_id else -1
    except (OSError, ValueError):
        return -1


def _print(sample: dict[str, Any]) -> None:
    print(json.dumps(sample), flush=True)
