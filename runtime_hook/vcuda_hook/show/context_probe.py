"""Measure the memory that a CUDA context takes on each GPU; context_memory.py runs this program.

Creates each GPU's primary context in turn and prints a JSON object: by UUID, the bytes by which
NVML's figure for this process grew; null if NVML has no figure. On an error: one line on stderr,
exit code 1. A process of its own, because an initialised driver stays so. Source: cuda.h, nvml.h.
"""

from __future__ import annotations

import ctypes
import json
import os
import sys
import uuid

from vcuda_oci.host.nvml_structures import MOST_PROCESSES, NOT_AVAILABLE, Process

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

NVML_ERROR_NOT_SUPPORTED = 3


class Failed(Exception):
    """A call returned an error."""


def measure(libcuda: str, libnvml: str) -> dict[str, int | None]:
    """Bytes by UUID. Raises Failed, OSError: a library cannot be loaded."""
    cuda, nvml = ctypes.CDLL(libcuda), ctypes.CDLL(libnvml)
    _ask(cuda, "cuInit", 0)
    _ask(nvml, "nvmlInit_v2")
    count = ctypes.c_int()
    _ask(cuda, "cuDeviceGetCount", ctypes.byref(count))
    return dict(_of_device(cuda, nvml, ordinal) for ordinal in range(count.value))


def _of_device(cuda: ctypes.CDLL, nvml: ctypes.CDLL, ordinal: int) -> tuple[str, int | None]:
    device, raw = ctypes.c_int(), ctypes.create_string_buffer(16)
    _ask(cuda, "cuDeviceGet", ctypes.byref(device), ordinal)
    _ask(cuda, "cuDeviceGetUuid_v2", raw, device)
    name = f"GPU-{uuid.UUID(bytes=raw.raw)}"
    handle, context = ctypes.c_void_p(), ctypes.c_void_p()
    _ask(nvml, "nvmlDeviceGetHandleByUUID", name.encode(), ctypes.byref(handle))
    before = _own_bytes(nvml, handle) or 0
    _ask(cuda, "cuDevicePrimaryCtxRetain", ctypes.byref(context), device)
    after = _own_bytes(nvml, handle)
    _ask(cuda, "cuDevicePrimaryCtxRelease_v2", device)
    return name, None if after is None else after - before


def _own_bytes(nvml: ctypes.CDLL, handle: ctypes.c_void_p) -> int | None:
    """NVML's figure for this process on the GPU. None: no figure, or the process is not listed,
    because it has no context or NVML shows pids of another namespace.
    """
    found = (Process * MOST_PROCESSES)()
    count = ctypes.c_uint(MOST_PROCESSES)
    if not _ask(
        nvml, "nvmlDeviceGetComputeRunningProcesses_v3", handle, ctypes.byref(count), found
    ):
        return None
    own = [each.used_bytes for each in found[: count.value] if each.pid == os.getpid()]
    return None if not own or NOT_AVAILABLE in own else sum(own)


def _ask(library: ctypes.CDLL, function: str, *arguments: Any) -> bool:
    """Call a function; False: not supported on this GPU. Raises Failed: any other error."""
    try:
        status = library[function](*arguments)
    except AttributeError as error:
        raise Failed(f"no {function}") from error
    if status == NVML_ERROR_NOT_SUPPORTED and function.startswith("nvml"):
        return False
    if status != 0:
        raise Failed(f"{function} answered {status}")
    return True


def main(libcuda: str, libnvml: str) -> None:
    """Arguments: the libraries' paths."""
    try:
        print(json.dumps(measure(libcuda, libnvml)))
    except (Failed, OSError) as error:
        sys.exit(str(error))
