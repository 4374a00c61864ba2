"""The GPUs that NVML counts, asked by ctypes and only where no cache knows them."""

from __future__ import annotations

import ctypes
import threading
import time

from ..model import topology
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from .nvml_answer import NvmlAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    _Found = tuple[Gpu, ctypes.c_void_p | None]  # MIG devices have no handle here


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


# A GPU that sleeps takes a second or two to answer for the first time.
FIRST_ANSWER_SECONDS = 5.0
# The reason of a GPU, or of all, about which NVML has been asked and says nothing.
HANGS = "NVML hangs"
_ENABLED = 1  # NVML_FEATURE_ENABLED, NVML_DEVICE_MIG_ENABLE
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


def inventory(library: str) -> NvmlAnswer:
    """All GPUs of the driver whose NVML is the file `library`, by index.

    One that hangs is left out as one that is lost is. Raises VcudaError: the library does not load,
    or no GPU answers. Source: nvml.h.
    """
    nvml = _Library(library)
    nvml.ask("nvmlInit_v2")
    try:
        version, cuda = ctypes.c_int(), ""
        if nvml.tells("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version)):
            cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        count = ctypes.c_uint()
        nvml.ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        looks = [_look_at(nvml, library, index) for index in range(count.value)]
        end = time.monotonic() + FIRST_ANSWER_SECONDS
        for look in looks:
            look.wait(end)
        found = [one for look in looks if not look.error for one in look.found]
        # One that is lost takes nothing from the others.
        silent = {look.index: look.error for look in looks if look.error}
        if silent and not found:
            raise silent[0]
        gpus, devices = [gpu for gpu, _ in found], [device for _, device in found]
        return NvmlAnswer(gpus, cuda, _distances(nvml, gpus, devices), silent)
    finally:
        if not _hanging:  # it would wait for them
            nvml.ask("nvmlShutdown")


def why_silent(library: str, index: int) -> str:
    """Why a GPU does not tell what `inventory` asks, of NVML that is open; "": now it does."""
    try:
        _gpu_with_parts(_Library(library), index)
    except VcudaError as error:
        return error.what
    return ""


class _Library:
    """NVML, by the names of its functions. Raises VcudaError: it does not load."""

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self._nvml = ctypes.CDLL(path)
        except OSError as error:
            raise VcudaError(f"does not load: {error}", path, "reinstall the driver") from error

    def ask(self, function: str, *arguments: object) -> None:
        """Raises VcudaError: it answers with an error, or has no such function."""
        try:
            status = self._nvml[function](*arguments)
        except AttributeError as error:
            raise VcudaError(f"has no {function}", self._path, "reinstall the driver") from error
        if status != 0:
            self._nvml.nvmlErrorString.restype = ctypes.c_char_p
            reason = self._nvml.nvmlErrorString(status).decode()
            mend = "check the driver with nvidia-smi"
            raise VcudaError(f"{function}: {reason}", self._path, mend)

    def tells(self, function: str, *arguments: object) -> bool:
        """Whether it answers; older drivers and some GPUs do not tell all."""
        try:
            self.ask(function, *arguments)
        except VcudaError:
            return False
        return True


class _Look(threading.Thread):
    """What one GPU answers, asked in a thread that may never come back.

    found: the GPU and its MIG devices, with their handles. error: why it does not answer.
    """

    def __init__(self, nvml: _Library, library: str, index: int) -> None:
        super().__init__(daemon=True)
        self._nvml, self._library, self.index = nvml, library, index
        self.found: list[_Found] = []
        self.error: VcudaError | None = None

    def run(self) -> None:
        try:
            self.found = _gpu_with_parts(self._nvml, self.index)
        except VcudaError as error:
            self.error = error

    def wait(self, end: float) -> None:
        """Until it has answered, or `end` of the monotonic clock; no longer for one that hung."""
        key = (self._library, self.index)
        self.join(0 if key in _hanging else max(0, end - time.monotonic()))
        if self.is_alive():
            _hanging[key] = self
            self.error = VcudaError(HANGS, self._library, "reset the GPU, or reboot")


# Who hung when this process last asked: asked again, it would have one more thread.
_hanging: dict[tuple[str, int], _Look] = {}


def _look_at(nvml: _Library, library: str, index: int) -> _Look:
    look = _hanging.get((library, index))
    if look and look.is_alive():
        return look
    _hanging.pop((library, index), None)
    look = _Look(nvml, library, index)
    look.start()
    return look


def _gpu_with_parts(nvml: _Library, index: int) -> list[_Found]:
    """Raises VcudaError: it does not answer."""
    gpu, handle = _gpu(nvml, index)
    return [(gpu, handle), *((mig, None) for mig in _mig_devices(nvml, gpu, handle))]


def _gpu(nvml: _Library, index: int) -> tuple[Gpu, ctypes.c_void_p]:
    """The GPU and its handle. Raises VcudaError: it does not answer."""
    device = ctypes.c_void_p()
    uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    minor, memory = ctypes.c_uint(), _Memory()
    nvml.ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    nvml.ask("nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(96))
    nvml.ask("nvmlDeviceGetName", device, name, ctypes.c_uint(96))
    nvml.ask("nvmlDeviceGetMinorNumber", device, ctypes.byref(minor))
    nvml.ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    gpu = Gpu(uuid.value.decode(), index, minor.value, memory.total, name.value.decode())
    pci, brand = _Pci(), ctypes.c_uint()
    major, least = ctypes.c_int(), ctypes.c_int()
    if nvml.tells("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci)):
        gpu.bus_id = _bus_id(pci)
    capability = "nvmlDeviceGetCudaComputeCapability"
    if nvml.tells(capability, device, ctypes.byref(major), ctypes.byref(least)):
        gpu.arch = f"{major.value}.{least.value}"
    if nvml.tells("nvmlDeviceGetBrand", device, ctypes.byref(brand)):
        gpu.brand = _BRANDS[brand.value] if brand.value < len(_BRANDS) else "unknown"
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    if nvml.tells("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending)):
        gpu.divided = mode.value == _ENABLED
    return gpu, device


def _mig_devices(nvml: _Library, gpu: Gpu, device: ctypes.c_void_p) -> list[Gpu]:
    """Those of a GPU that is in MIG mode. Raises VcudaError: one does not answer."""
    found: list[Gpu] = []
    most = ctypes.c_uint()
    if gpu.divided:
        nvml.ask("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
    for number in range(most.value):
        mig, memory = ctypes.c_void_p(), _Memory()
        uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        instance, compute = ctypes.c_uint(), ctypes.c_uint()
        at = ctypes.c_uint(number)
        if not nvml.tells("nvmlDeviceGetMigDeviceHandleByIndex", device, at, ctypes.byref(mig)):
            continue  # none with this number
        nvml.ask("nvmlDeviceGetUUID", mig, uuid, ctypes.c_uint(96))
        nvml.ask("nvmlDeviceGetMemoryInfo", mig, ctypes.byref(memory))
        nvml.ask("nvmlDeviceGetGpuInstanceId", mig, ctypes.byref(instance))
        nvml.ask("nvmlDeviceGetComputeInstanceId", mig, ctypes.byref(compute))
        told = nvml.tells("nvmlDeviceGetName", mig, name, ctypes.c_uint(96))
        found.append(
            Gpu(
                *(uuid.value.decode(), gpu.index, gpu.minor, memory.total),
                name.value.decode() if told else gpu.model,
                *(gpu.bus_id, gpu.arch, gpu.brand),
                parent=gpu.uuid,
                mig=[number, instance.value, compute.value],
            )
        )
    return found


def _bus_id(pci: _Pci) -> str:
    """NVML writes the domain with eight digits, the kernel with four."""
    domain, _, rest = pci.bus_id.decode().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _distances(
    nvml: _Library, gpus: Sequence[Gpu], devices: Sequence[ctypes.c_void_p | None]
) -> list[list[int]] | None:
    """See topology.distances. MIG devices, whose handle is None, reach nothing."""
    levels: list[list[int | None]] = []
    for one in devices:
        levels.append([])
        for other in devices:
            level = ctypes.c_uint()
            pair = (one, other, ctypes.byref(level))
            told = one and other and nvml.tells("nvmlDeviceGetTopologyCommonAncestor", *pair)
            levels[-1].append(level.value if told else None)
    ends = [_link_ends(nvml, device) if device else [] for device in devices]
    switched = [found.count(None) for found in ends]
    links = [
        [
            # Links to switches lead to every GPU that has such links.
            0
            if one is other or other.mig
            else ends[a].count(other.bus_id) + min(switched[a], switched[b])
            for b, other in enumerate(gpus)
        ]
        for a, one in enumerate(gpus)
    ]
    return topology.distances(links, levels)


def _link_ends(nvml: _Library, device: ctypes.c_void_p) -> list[str | None]:
    """Where each active NVLink of the GPU ends: a bus id, or None for a switch."""
    ends: list[str | None] = []
    for link in range(topology.MOST_LINKS):
        number, active, pci, kind = ctypes.c_uint(link), ctypes.c_uint(), _Pci(), ctypes.c_uint()
        if not nvml.tells("nvmlDeviceGetNvLinkState", device, number, ctypes.byref(active)):
            break  # it has no more
        if active.value != _ENABLED:
            continue
        remote = (device, number, ctypes.byref(kind))
        if nvml.tells("nvmlDeviceGetNvLinkRemoteDeviceType", *remote) and kind.value == _SWITCH:
            ends.append(None)
        elif nvml.tells("nvmlDeviceGetNvLinkRemotePciInfo_v2", device, number, ctypes.byref(pci)):
            ends.append(_bus_id(pci))
    return ends
