"""Ask NVML about all GPUs, by ctypes.

Each GPU is asked in a thread of its own, because the driver can hang in a call for one GPU. A
thread that hangs is remembered, and no second one is started for the same GPU.
"""

from __future__ import annotations

import ctypes
import threading
import time

from ..model import topology
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from .facts_cache import NvmlAnswer
from .nvml_structures import Memory

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeVar

    _Answer = TypeVar("_Answer")
    _Found = tuple[Gpu, ctypes.c_void_p | None]  # MIG devices have no handle here


class _Pci(ctypes.Structure):
    """nvmlPciInfo_t."""

    _fields_ = [
        ("bus_id_legacy", ctypes.c_char * 16),
        ("numbers", ctypes.c_uint * 5),
        ("bus_id", ctypes.c_char * 32),
    ]


# The names of nvmlBrandType_t in NVIDIA_REQUIRE_*.
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


# An idle GPU takes one to two seconds for its first answer.
FIRST_ANSWER_SECONDS = 5.0
# The reason of a GPU for which a call of NVML does not return.
HANGS = "NVML hangs"
_ENABLED = 1  # NVML_FEATURE_ENABLED, NVML_DEVICE_MIG_ENABLE
_SWITCH = 2  # NVML_NVLINK_DEVICE_TYPE_SWITCH


def inventory(library: str) -> NvmlAnswer:
    """Ask about all GPUs; library: path of NVML.

    A GPU that hangs or is lost is in `silent`. Raises VcudaError: the library cannot be loaded, or
    no GPU answers. Source: nvml.h.
    """
    nvml = Library(library)
    nvml.ask("nvmlInit_v2")
    try:
        version, cuda = ctypes.c_int(), ""
        if nvml.supports("nvmlSystemGetCudaDriverVersion_v2", ctypes.byref(version)):
            cuda = f"{version.value // 1000}.{version.value % 1000 // 10}"
        count = ctypes.c_uint()
        nvml.ask("nvmlDeviceGetCount_v2", ctypes.byref(count))
        queries = [_query_of(nvml, library, index) for index in range(count.value)]
        end = time.monotonic() + FIRST_ANSWER_SECONDS
        for query in queries:
            query.wait(end)
        found = [one for query in queries if not query.error for one in query.found]
        silent = {query.index: query.error for query in queries if query.error}
        if silent and not found:
            raise silent[0]
        gpus, devices = [gpu for gpu, _ in found], [device for _, device in found]
        return NvmlAnswer(gpus, cuda, _distances(nvml, gpus, devices), silent)
    finally:
        if not _hanging:  # nvmlShutdown would wait for hanging calls
            nvml.ask("nvmlShutdown")


def why_silent(library: str, index: int) -> str:
    """Why a GPU does not answer all of `inventory`'s questions; "": it does. NVML must be open."""
    try:
        _gpu_with_parts(Library(library), index)
    except VcudaError as error:
        return error.what
    return ""


class Library:
    """NVML's functions by name. Raises VcudaError: the library cannot be loaded.

    calls: the functions as they are, each with its nvmlReturn_t.
    """

    def __init__(self, path: str) -> None:
        self._path = path
        try:
            self.calls = ctypes.CDLL(path)
        except OSError as error:
            raise VcudaError(f"does not load: {error}", path, "reinstall the driver") from error

    def ask(self, function: str, *arguments: object) -> None:
        """Call a function. Raises VcudaError: it returns an error, or does not exist."""
        status = self.status(function, *arguments)
        if status != 0:
            hint = "check the driver with nvidia-smi"
            raise VcudaError(f"{function}: {self.reason(status)}", self._path, hint)

    def reason(self, status: int) -> str:
        """What an nvmlReturn_t means."""
        self.calls.nvmlErrorString.restype = ctypes.c_char_p
        text: bytes = self.calls.nvmlErrorString(status)
        return text.decode("utf-8", "replace")

    def status(self, function: str, *arguments: object) -> int:
        """Call a function; its nvmlReturn_t. Raises VcudaError: it does not exist."""
        try:
            return int(self.calls[function](*arguments))
        except AttributeError as error:
            raise VcudaError(f"has no {function}", self._path, "reinstall the driver") from error

    def supports(self, function: str, *arguments: object) -> bool:
        """Call a function that older drivers and some GPUs lack; return whether it succeeded."""
        try:
            self.ask(function, *arguments)
        except VcudaError:
            return False
        return True


class _Query(threading.Thread):
    """The thread that asks about one GPU; it may never end.

    found: the GPU and its MIG devices, with their handles. error: why the GPU does not answer.
    """

    def __init__(self, nvml: Library, library: str, index: int) -> None:
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
        """Wait until the GPU has answered or the monotonic clock is `end`.

        Do not wait for a GPU that hung before.
        """
        key = (self._library, self.index)
        self.join(0 if key in _hanging else max(0, end - time.monotonic()))
        if self.is_alive():
            _hanging[key] = self
            self.error = VcudaError(HANGS, self._library, "reset the GPU, or reboot")


# Queries that hang, by library and index. Asking again would start one more thread that hangs.
_hanging: dict[tuple[str, int], _Query] = {}


def _query_of(nvml: Library, library: str, index: int) -> _Query:
    """The hanging query of this GPU, or a new one."""
    query = _hanging.get((library, index))
    if query and query.is_alive():
        return query
    _hanging.pop((library, index), None)
    query = _Query(nvml, library, index)
    query.start()
    return query


def _gpu_with_parts(nvml: Library, index: int) -> list[_Found]:
    """The GPU and its MIG devices. Raises VcudaError: one does not answer."""
    gpu, handle = _gpu(nvml, index)
    return [(gpu, handle), *((mig, None) for mig in _mig_devices(nvml, gpu, handle))]


def _gpu(nvml: Library, index: int) -> tuple[Gpu, ctypes.c_void_p]:
    """The GPU and its handle. Raises VcudaError: it does not answer."""
    device = ctypes.c_void_p()
    uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
    minor, memory = ctypes.c_uint(), Memory()
    nvml.ask("nvmlDeviceGetHandleByIndex_v2", ctypes.c_uint(index), ctypes.byref(device))
    nvml.ask("nvmlDeviceGetUUID", device, uuid, ctypes.c_uint(96))
    nvml.ask("nvmlDeviceGetName", device, name, ctypes.c_uint(96))
    nvml.ask("nvmlDeviceGetMinorNumber", device, ctypes.byref(minor))
    nvml.ask("nvmlDeviceGetMemoryInfo", device, ctypes.byref(memory))
    gpu = Gpu(uuid.value.decode(), index, minor.value, memory.total, name.value.decode())
    pci, brand = _Pci(), ctypes.c_uint()
    major, least = ctypes.c_int(), ctypes.c_int()
    if nvml.supports("nvmlDeviceGetPciInfo_v3", device, ctypes.byref(pci)):
        gpu.bus_id = _bus_id(pci)
    capability = "nvmlDeviceGetCudaComputeCapability"
    if nvml.supports(capability, device, ctypes.byref(major), ctypes.byref(least)):
        gpu.arch = f"{major.value}.{least.value}"
    if nvml.supports("nvmlDeviceGetBrand", device, ctypes.byref(brand)):
        gpu.brand = _BRANDS[brand.value] if brand.value < len(_BRANDS) else "unknown"
    mode, pending = ctypes.c_uint(), ctypes.c_uint()
    if nvml.supports("nvmlDeviceGetMigMode", device, ctypes.byref(mode), ctypes.byref(pending)):
        gpu.divided = mode.value == _ENABLED
    return gpu, device


def _mig_devices(nvml: Library, gpu: Gpu, device: ctypes.c_void_p) -> list[Gpu]:
    """The MIG devices of a GPU; [] unless it is in MIG mode. Raises VcudaError."""

    def mig_device(mig: ctypes.c_void_p, number: int) -> Gpu:
        uuid, name = ctypes.create_string_buffer(96), ctypes.create_string_buffer(96)
        memory, instance, compute = Memory(), ctypes.c_uint(), ctypes.c_uint()
        nvml.ask("nvmlDeviceGetUUID", mig, uuid, ctypes.c_uint(96))
        nvml.ask("nvmlDeviceGetMemoryInfo", mig, ctypes.byref(memory))
        nvml.ask("nvmlDeviceGetGpuInstanceId", mig, ctypes.byref(instance))
        nvml.ask("nvmlDeviceGetComputeInstanceId", mig, ctypes.byref(compute))
        has_name = nvml.supports("nvmlDeviceGetName", mig, name, ctypes.c_uint(96))
        return Gpu(
            uuid.value.decode(),
            gpu.index,
            gpu.minor,
            memory.total,
            name.value.decode() if has_name else gpu.model,
            gpu.bus_id,
            gpu.arch,
            gpu.brand,
            parent=gpu.uuid,
            mig=[number, instance.value, compute.value],
        )

    return list(each_mig_device(nvml, device, mig_device)) if gpu.divided else []


def each_mig_device(
    nvml: Library, device: ctypes.c_void_p, ask: Callable[[ctypes.c_void_p, int], _Answer]
) -> Iterator[_Answer]:
    """What `ask` answers for each MIG device of a GPU in MIG mode, by handle and number.

    Raises VcudaError as `ask` does, unless the MIG device was destroyed meanwhile.
    """
    most = ctypes.c_uint()
    nvml.ask("nvmlDeviceGetMaxMigDeviceCount", device, ctypes.byref(most))
    for number in range(most.value):
        mig, at = ctypes.c_void_p(), ctypes.c_uint(number)
        by_number = ("nvmlDeviceGetMigDeviceHandleByIndex", device, at, ctypes.byref(mig))
        if not nvml.supports(*by_number):
            continue  # no MIG device has this number
        try:
            answer = ask(mig, number)
        except VcudaError:
            if nvml.supports(*by_number):
                raise
            continue  # it was destroyed meanwhile
        yield answer


def _bus_id(pci: _Pci) -> str:
    """The bus id as the kernel writes it: NVML's domain has eight digits, the kernel's four."""
    domain, _, rest = pci.bus_id.decode().lower().partition(":")
    return f"{domain[-4:]}:{rest}"


def _distances(
    nvml: Library, gpus: Sequence[Gpu], devices: Sequence[ctypes.c_void_p | None]
) -> list[list[int]] | None:
    """See topology.distances. MIG devices have no handle and no links."""

    def level(one: ctypes.c_void_p | None, other: ctypes.c_void_p | None) -> int | None:
        found = ctypes.c_uint()
        pair = (one, other, ctypes.byref(found))
        known = one and other and nvml.supports("nvmlDeviceGetTopologyCommonAncestor", *pair)
        return found.value if known else None

    levels = [[level(one, other) for other in devices] for one in devices]
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


def _link_ends(nvml: Library, device: ctypes.c_void_p) -> list[str | None]:
    """Where each active NVLink of the GPU ends: a bus id, or None for a switch."""
    ends: list[str | None] = []
    for link in range(topology.MOST_LINKS):
        number, active, pci, kind = ctypes.c_uint(link), ctypes.c_uint(), _Pci(), ctypes.c_uint()
        if not nvml.supports("nvmlDeviceGetNvLinkState", device, number, ctypes.byref(active)):
            break  # no more links
        if active.value != _ENABLED:
            continue
        remote = (device, number, ctypes.byref(kind))
        if nvml.supports("nvmlDeviceGetNvLinkRemoteDeviceType", *remote) and kind.value == _SWITCH:
            ends.append(None)
        elif nvml.supports(
            "nvmlDeviceGetNvLinkRemotePciInfo_v2", device, number, ctypes.byref(pci)
        ):
            ends.append(_bus_id(pci))
    return ends
