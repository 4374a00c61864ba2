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


class _Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus_id", ctypes.c_char * 32),
    ]


# nvmlBrandType_t, as NVIDIA_REQUIRE_* spells them.
_BRANDS = (
    "unknown",
    "quadro",
    "tesla",
    "nvs",
    "grid",
    "geforce",
    "titan",
    "nvidiavapps",
    "nvidiavpc",
    "nvidiavcs",
    "nvidiavws",
    "nvidiacloudgaming",
    "quadrortx",
    "nvidiartx",
    "nvidia",
    "geforcertx",
    "titanrtx",
)


def inventory(library: str) -> tuple[list[Gpu], str]:
    """All GPUs of the driver whose NVML is the file `library`, by index, and its CUDA, "13.0".

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

    def is_told(function: str, *arguments: object) -> bool:
        try:
            ask(function, *arguments)
        except VcudaError:
            return False  # what older drivers or some GPUs do not tell
        return True

    ask("nvmlInit_v2")
    try:
        version, cuda = ctypes.c_int(), ""
        if is_told("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version)):
            cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
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
            gpu = Gpu(uuid.value.decode(), index, minor.value, memory.total, name.value.decode())
            pci, brand = _Pci(), ctypes.c_uint()
            major, least = ctypes.c_int(), ctypes.c_int()
            if is_told("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci)):
                # NVML writes the domain with eight digits, the kernel with four.
                domain, _, rest = pci.bus_id.decode().lower().partition(":")
                gpu.bus_id = f"{domain[-4:]}:{rest}"
            capability = "nvmlDeviceGetCudaComputeCapability"
            if is_told(capability, device, ctypes.byref(major), ctypes.byref(least)):
                gpu.arch = f"{major.value}.{least.value}"
            if is_told("nvmlDeviceGetBrand", device, ctypes.byref(brand)):
                gpu.brand = _BRANDS[brand.value] if brand.value < len(_BRANDS) else "unknown"
            gpus.append(gpu)
        return gpus, cuda
    finally:
        nvml.nvmlShutdown()
