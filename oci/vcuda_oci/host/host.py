"""The host's facts below a driver root: GPUs, device nodes and the driver's files.

The driver root is ``/`` if the driver is installed on the host. A driver in a container and the
software GPU have a folder with the same layout.
"""

from __future__ import annotations

import os

from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.names import INSTANCES, SOFTWARE_GPU_STATE
from . import device_nodes, driver_files, facts_cache
from .device_nodes import DeviceNode

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

__all__ = ["DeviceNode", "Host", "load"]


class Host:
    """The facts of one driver root.

    version: the driver's. folder: libcuda's, on the host. libraries, libraries_32_bit: path on the
    host by name below the loader's folder; the soname and the versioned name have the same path.
    files: path on the host of the driver's other files, by path in the container. nodes: by name
    below /dev. gpu_nodes: names of a GPU's further nodes, by UUID. services: paths of sockets and
    of folders with sockets. cuda: the newest CUDA version that the driver supports, "13.0".
    distances: between the GPUs, see topology. silent: error of a GPU that does not answer, by
    index; such a GPU is not in `gpus`. library: NVML's path. software_state: the software GPU's
    state file, or "". gpus_key: of NVML's answer, see facts_cache.
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
        self.library = ""
        self.gpus_key: list[Any] = []
        self.software_state = ""
        self.distances: list[list[int]] | None = None
        self.silent: dict[int, VcudaError] = {}

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)

    def has_these_gpus(self, cache: str) -> bool:
        """Whether driver, GPUs and MIG devices are still these. cache: as for `load`. Raises
        VcudaError: NVML was removed."""
        return facts_cache.gpus_key(self.root, self.library, _instances(cache)) == self.gpus_key

    @property
    def has_divided(self) -> bool:
        """Whether a GPU is in MIG mode."""
        return any(gpu.divided for gpu in self.gpus)

    def parts(self, gpu: Gpu) -> list[Gpu]:
        """The usable parts of a GPU: itself, or its MIG devices in MIG mode."""
        return [one for one in self.gpus if one.parent == gpu.uuid] if gpu.divided else [gpu]


def load(root: str, cache: str, extra_devices: Sequence[str] = ()) -> Host:
    """Find the host's facts; scan the driver's files and call NVML only if the cache is stale.

    cache: path of the cache. extra_devices: the setting. Raises VcudaError: no driver below `root`,
    or NVML does not answer.
    """
    root = root.rstrip("/")
    cached = facts_cache.read(cache)
    found: Any = cached.get("driver")
    key_now = facts_cache.files_key(root, found)
    stale = key_now is None or found.get("key") != key_now
    if stale:
        from . import driver_scan  # late: reads folders of thousands of names

        found = driver_scan.find(root).as_json()
    library = f"{found['folder']}/libnvidia-ml.so.{found['version']}"
    library = found["libraries"].get("libnvidia-ml.so.1", library)
    key = facts_cache.gpus_key(root, library, _instances(cache))
    answer = facts_cache.cached_answer(cached.get("nvml"), key)
    if answer is None:
        from . import nvml  # late: loads ctypes and the driver's NVML

        answer = nvml.inventory(library)
        stale = True
    if stale:
        facts_cache.write(cache, {"driver": found, "nvml": facts_cache.answer_as_json(answer, key)})
    host = Host(root, found["version"], found["folder"], answer.gpus, answer.cuda)
    host.library, host.gpus_key = library, key
    host.distances, host.silent = answer.distances, answer.silent
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


def _instances(cache: str) -> str:
    """The folder of records of GPU instances that belongs to a cache."""
    return f"{os.path.dirname(cache)}/{INSTANCES}"


def seen_by_containers(cache: str) -> list[str]:
    """The driver's files that containers see, by the cache; []: no cache."""
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
