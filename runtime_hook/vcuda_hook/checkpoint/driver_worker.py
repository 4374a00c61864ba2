"""The process that calls the driver's checkpoint functions; worker.py starts it.

A call of the driver may hang, and cannot be interrupted: the parent then kills this process. It
reads a request a line from its standard input and answers each by a line on its standard output,
both JSON, each request in a thread of its own. It ends when the parent has.

    {"id": 1, "call": "lock", "pid": 7, "started": 4711, "ms": 5000, "pairs": []}
    {"id": 1, "status": 0, "state": 1}

    {"id": 2, "call": "memory", "pids": [7, 8]}
    {"id": 2, "held": {"GPU-1": 4096}, "free": {"GPU-1": 8192}, "alone": ["GPU-1"]}

started: the process's start time in clock ticks since boot: another process may get the same pid.
pairs: of a restore, the UUID of each GPU and of the one that takes its place; []: the same GPUs.
status: the driver's answer (CUresult); GONE: the process has ended. state: the process's state
after the call (CUprocessState); NO_CUDA: it does not use CUDA. Source: cuda.h. held, free: bytes by
UUID, of the processes together and of each GPU, as NVML reports them; without it, nothing. alone:
the GPUs on which no other process computes.
"""

from __future__ import annotations

import _thread  # `threading` and `json` would take half of the time of this process's start
import ctypes
import os
import sys
import time

from vcuda_oci.host.nvml_structures import MOST_PROCESSES, NOT_AVAILABLE, Memory, Process
from vcuda_oci.ledger.liveness import start_time
from vcuda_oci.model import jsontree

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from typing import Any

GONE, NO_CUDA, UNKNOWN = -1, -1, -2
READY, MEMORY = "ready", "memory"
SUCCESS, INVALID_VALUE, NOT_INITIALIZED = 0, 1, 3
# Answers for a process without CUDA.
WITHOUT_CUDA = (INVALID_VALUE, NOT_INITIALIZED)
_ARGS_BYTES = 64
_UUID_BYTES = 96
_FUNCTIONS = {
    "lock": "cuCheckpointProcessLock",
    "checkpoint": "cuCheckpointProcessCheckpoint",
    "restore": "cuCheckpointProcessRestore",
    "unlock": "cuCheckpointProcessUnlock",
}
_GET_STATE = "cuCheckpointProcessGetState"


class Driver:
    """The driver's library. Raises OSError: it cannot be loaded. AttributeError: a driver before
    570.
    """

    def __init__(self, path: str) -> None:
        cuda = ctypes.CDLL(path)
        self._calls = {call: cuda[name] for call, name in _FUNCTIONS.items()}
        self._get_state = cuda[_GET_STATE]
        self._init = cuda["cuInit"]

    def init(self) -> int:
        return int(self._init(0))

    def state(self, pid: int) -> int:
        """The process's state; NO_CUDA; UNKNOWN: the driver refuses to say."""
        found = ctypes.c_int(0)
        status = self._get_state(ctypes.c_int(pid), ctypes.byref(found))
        if status == SUCCESS:
            return found.value
        return NO_CUDA if status in WITHOUT_CUDA else UNKNOWN

    def answer(
        self, call: str, pid: int, started: int, ms: int, pairs: list[list[str]]
    ) -> dict[str, int]:
        """Make a call for one process. ms: how long a lock may wait for calls in flight."""
        if start_time(pid) != started:
            return {"status": GONE, "state": NO_CUDA}
        status = SUCCESS
        if call in self._calls:
            args = (ctypes.c_uint32 * (_ARGS_BYTES // 4))()
            if call == "lock":
                args[0] = ms
            if call == "restore" and pairs:
                array = _gpu_pairs(pairs)
                ctypes.c_void_p.from_buffer(args).value = ctypes.addressof(array)
                args[2] = len(pairs)
            status = int(self._calls[call](ctypes.c_int(pid), args))
        state = self.state(pid)
        if start_time(pid) != started:
            if call == "lock" and status == SUCCESS:
                self._calls["unlock"](ctypes.c_int(pid), (ctypes.c_uint32 * (_ARGS_BYTES // 4))())
            return {"status": GONE, "state": NO_CUDA}
        return {"status": status, "state": state}


def _gpu_pairs(pairs: list[list[str]]) -> ctypes.Array[ctypes.c_char]:
    """An array of CUcheckpointGpuPair: two UUIDs of 16 bytes each. Source: cuda.h of 13.0."""
    texts = [uuid.partition("-")[2].replace("-", "") for pair in pairs for uuid in pair]
    return ctypes.create_string_buffer(b"".join(map(bytes.fromhex, texts)), 32 * len(pairs))


class _Memory:
    """GPU memory as NVML reports it; the library beside libcuda is opened at the first question."""

    def __init__(self, cuda: str) -> None:
        folder, name = os.path.split(cuda)
        self._path = f"{folder}/{name.replace('libcuda', 'libnvidia-ml')}"
        self._opened: ctypes.CDLL | None = None

    def answer(self, pids: Sequence[int]) -> dict[str, Any]:
        """Each figure without the GPUs of which NVML has none; without NVML nothing."""
        held, free, alone, memory = {}, {}, [], Memory()
        for uuid, device, nvml in self._devices():
            if not nvml.nvmlDeviceGetMemoryInfo(device, ctypes.byref(memory)):
                free[uuid] = int(memory.free)
            listed, count = (Process * MOST_PROCESSES)(), ctypes.c_uint(MOST_PROCESSES)
            lists = nvml.nvmlDeviceGetComputeRunningProcesses_v3
            if lists(device, ctypes.byref(count), listed):
                continue
            own = [each.used_bytes for each in listed[: count.value] if each.pid in pids]
            if NOT_AVAILABLE not in own:
                held[uuid] = sum(own)
            if len(own) == count.value:
                alone.append(uuid)
        return {"held": held, "free": free, "alone": alone}

    def _devices(self) -> Iterator[tuple[str, ctypes.c_void_p, ctypes.CDLL]]:
        """The UUID and the handle of each GPU that answers, with the library."""
        nvml, count = self._open(), ctypes.c_uint()
        if nvml is None or nvml.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        for index in range(count.value):
            device, uuid = ctypes.c_void_p(), ctypes.create_string_buffer(_UUID_BYTES)
            if nvml.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(device)):
                continue
            if not nvml.nvmlDeviceGetUUID(device, uuid, ctypes.c_uint(_UUID_BYTES)):
                yield uuid.value.decode(), device, nvml

    def _open(self) -> ctypes.CDLL | None:
        """None: it cannot be loaded, or does not start."""
        if self._opened is None:
            try:
                nvml = ctypes.CDLL(self._path)
            except OSError:
                return None
            self._opened = None if nvml.nvmlInit_v2() else nvml
        return self._opened


def main(library: str, leave_seconds: str) -> None:
    """library: path of libcuda. leave_seconds: how long calls may take to end after the parent has:
    one that is cut short may leave a process half restored.
    """
    writing = _thread.allocate_lock()

    def write(answer: dict[str, Any]) -> None:
        with writing:
            sys.stdout.write(jsontree.dumps(answer) + "\n")
            sys.stdout.flush()

    try:
        driver = Driver(library)
        write({READY: driver.init()})
    except (OSError, AttributeError) as error:
        write({"error": str(error)})
        return

    memory = _Memory(library)

    def serve(id: int, request: dict[str, Any], running: _thread.LockType) -> None:
        try:
            if request["call"] == MEMORY:
                write({"id": id, **memory.answer(request["pids"])})
            else:
                write({"id": id, **driver.answer(**request)})
        finally:
            running.release()

    calls: list[_thread.LockType] = []  # for each thread, a lock that is held while it runs
    for line in sys.stdin:
        request = jsontree.loads(line)
        id = request.pop("id")
        calls = [running for running in calls if running.locked()]
        calls.append(_thread.allocate_lock())
        calls[-1].acquire()
        _thread.start_new_thread(serve, (id, request, calls[-1]))
    end = time.monotonic() + float(leave_seconds)
    for running in calls:
        running.acquire(timeout=max(0.0, end - time.monotonic()))
    os._exit(0)
