"""The GPUs that NVML counts, asked by ctypes and only where no cache knows them."""

from __future__ import annotations

import ctypes

from .errors import VcudaError
from .placement import Gpu


class _Memory(ctypes.Structure):
    """nvmlMemory_t, bytes."""

    _fields_ = [
        ("total", ctypes.c_ulonglong),
        ("free", ctypes.c_ulonglong),
        ("used", ctypes.c_ulonglong),
    ]


def inventory(library: str) -> list[Gpu]:
    """All GPUs of the driver whose NVML is the file `library`, by index.

    Raises VcudaError: the library does not load or does not answer. Source: nvml.h.
    """
    try:
        nvml = ctypes.CDLL(library)
    except OSError as error:
        raise VcudaError(f"does not load: {error}", library, "reinstall the driver") from error

    def ask(function: str, *arguments: object) -> None:
        try:
            status = nvml[function](*arguments)
        except AttributeError as error:
            raise VcudaError(f"has no {function}", library, "reinstall the driver") from error
        if status != 0:
            nvml.nvmlErrorString.restype = ctypes.c_char_p
            reason = nvml.nvmlErrorString(status).decode()
            raise VcudaError(f"{function}: {reason}", library, "check the driver with nvidia-smi")

    ask("nvmlInit_v2")
    try:
        count = ctypes.c_uint()
        ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        gpus = []
        for index in range(count.value):
            device = ctypes.c_void_p()
            uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
            minor, memory = ctypes.c_uint(), _Memory()
            ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
            ask("nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(96))
            ask("nvmlDeviceGetName", device, name, ctypes.c_uint(96))
            ask("nvmlDeviceGetMinorNumber", device, ctypes.byref(minor))
            ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
            gpus.append(
                Gpu(uuid.value.decode(), index, minor.value, memory.total, name.value.decode())
            )
        return gpus
    finally:
        nvml.nvmlShutdown()
