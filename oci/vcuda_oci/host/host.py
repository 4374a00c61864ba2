"""What the host has: GPUs, device nodes and the driver's files, found below a driver root.

A driver root is ``/`` where the driver is installed on the host, and a folder with the same layout
where it lives in a container (or is made of software).
"""

from __future__ import annotations

import os

from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.names import SOFTWARE_GPU_STATE
from . import device_nodes, driver_files, facts_cache
from .device_nodes import DeviceNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["DeviceNode", "Host", "load"]


class Host:
    """Facts of one driver root.

    folder: libcuda's, on the host. libraries, libraries_32_bit: file on the host by the name below
    the loader's folder; a soname and the versioned name stand for the same file. files: the
    driver's other files, by their path inside. nodes: by name below /dev. gpu_nodes: names of what
    belongs to a GPU beside its own node, by UUID. services: paths of sockets, or folders of such.
    cuda: the newest CUDA that the driver serves, "13.0". distances: between the GPUs, see topology.
    silent: why a GPU that NVML counts is none of them, by its index. software_state: the file that
    stands for the hardware of software GPUs, or "".
    """

    def __init__(
        self, root: str, version: str, folder: str, gpus: list[Gpu], cuda: str = ""
    ) -> None:
        self.root, self.version, self.folder, self.gpus = root, version, folder, gpus
        self.cuda = cuda
        self.libraries: dict[str, str] = {}
        self.libraries_32_bit: dict[str, str] = {}
        self.files: dict[str, str] = {}
        self.nodes: dict[str, DeviceNode] = {}
        self.gpu_nodes: dict[str, list[str]] = {}
        self.services: list[str] = []
        self.software_state = ""
        self.distances: list[list[int]] | None = None
        self.silent: dict[int, VcudaError] = {}

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def parts(self, gpu: Gpu) -> list[Gpu]:
        """What of the GPU is for use: itself, or its MIG devices."""
        return [one for one in self.gpus if one.parent == gpu.uuid] if gpu.divided else [gpu]


def load(root: str, cache: str, extra_devices: Sequence[str] = ()) -> Host:
    """The host's facts. What a scan found and NVML told is kept in the file `cache`, each until
    something that it came from changes.

    extra_devices: the setting, whose nodes are looked for too. Raises VcudaError: no driver below
    `root`, or NVML does not answer.
    """
    root = root.rstrip("/")
    kept = facts_cache.read(cache)
    found: Any = kept.get("driver")
    scanned = facts_cache.files_key(root, found)
    stale = scanned is None or found.get("key") != scanned
    if stale:
        from . import driver_scan  # reads folders of thousands of names: only after a change

        found = facts_cache.driver_as_json(root, driver_scan.find(root))
    library = f"{found['folder']}/libnvidia-ml.so.{found['version']}"
    library = found["libraries"].get("libnvidia-ml.so.1", library)
    key = facts_cache.gpus_key(root, library)
    told = facts_cache.cached_answer(kept.get("nvml"), key)
    if told is None:
        from . import nvml  # ctypes and the driver: only when the cache does not know

        told = nvml.inventory(library)
        stale = True
    if stale:
        facts_cache.write(cache, {"driver": found, "nvml": facts_cache.answer_as_json(told, key)})
    host = Host(root, found["version"], found["folder"], told.gpus, told.cuda)
    host.distances, host.silent = told.distances, told.silent
    host.libraries, host.libraries_32_bit = found["libraries"], found["libraries_32_bit"]
    host.files = dict(found["files"])
    _add_extra_files(host, extra_devices)
    host.gpu_nodes = {gpu.uuid: device_nodes.of_gpu(root, gpu) for gpu in host.gpus}
    names = [
        *device_nodes.CONTROL,
        device_nodes.MODESET,
        *(f"nvidia{gpu.minor}" for gpu in host.gpus),
    ]
    names += [name for of_gpu in host.gpu_nodes.values() for name in of_gpu]
    host.nodes = device_nodes.find(root, names + device_nodes.of_settings(root, extra_devices))
    return host


def seen_by_containers(cache: str) -> list[str]:
    """The driver's files that containers see, as the file `cache` has them; [] without one."""
    found: Any = facts_cache.read(cache).get("driver")
    if facts_cache.files_key("", found) is None:
        return []
    tables = (found["libraries"], found["libraries_32_bit"], found["files"])
    return sorted({path for table in tables for path in table.values()})


def _add_extra_files(host: Host, extra_devices: Sequence[str]) -> None:
    for setting in extra_devices:
        for path in driver_files.EXTRA_FILES.get(setting, ()):
            if os.path.exists(host.root + path):
                host.files[path] = host.root + path
    state = f"{host.root}/{os.path.basename(SOFTWARE_GPU_STATE)}"
    if host.root and os.path.exists(state):
        host.software_state = state
    extra = [driver_files.EXTRA_SERVICES.get(setting, "") for setting in extra_devices]
    for path in (*driver_files.SERVICES, *extra):
        if path and os.path.exists(host.root + path):
            host.services.append(path)
