"""What the host has: GPUs, device nodes and the driver's files, found below a driver root.

A driver root is ``/`` where the driver is installed on the host, and a folder with the same layout
where it lives in a container (or is made of software).
"""

from __future__ import annotations

import os

from ..model import jsontree, topology
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.names import SOFTWARE_GPU_STATE
from ..system import files
from . import device_nodes, driver_files
from .device_nodes import DeviceNode
from .nvml_answer import NvmlAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

    from .driver_scan import DriverFiles

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
    kept = _kept(cache)
    found: Any = kept.get("driver")
    scanned = _files_key(root, found)
    stale = scanned is None or found.get("key") != scanned
    if stale:
        from . import driver_scan  # reads folders of thousands of names: only after a change

        found = _as_json(root, driver_scan.find(root))
    library = f"{found['folder']}/libnvidia-ml.so.{found['version']}"
    library = found["libraries"].get("libnvidia-ml.so.1", library)
    key = gpus_key(root, library)
    told = _kept_told(kept.get("nvml"), key)
    if told is None:
        from . import nvml  # ctypes and the driver: only when the cache does not know

        told = nvml.inventory(library)
        stale = True
    if stale:
        _keep(cache, {"driver": found, "nvml": _told_as_json(told, key)})
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
    found: Any = _kept(cache).get("driver")
    if _files_key("", found) is None:
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


# The cache as it was last read, by its path and stamp: a door is asked for it again and again.
_latest: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}


def _kept(cache: str) -> dict[str, Any]:
    """What is in the cache, to be read only."""
    key = (cache, files.stamp(cache))
    known = _latest.get(key)
    if known:
        return known
    try:
        files.only_ours(cache)  # it says which of the host's files containers get
        kept = jsontree.loads(files.read(cache, 1 << 22).decode())
    except (OSError, ValueError):
        return {}  # no cache, or not whole: look again
    if not isinstance(kept, dict):
        return {}
    _latest.clear()
    if key[1]:
        _latest[key] = kept
    return kept


def _keep(cache: str, content: dict[str, Any]) -> None:
    try:
        os.makedirs(os.path.dirname(cache), 0o755, exist_ok=True)
        # Two that ask at once write the same; what a reader sees half-written is no cache to it.
        files.replace(cache, jsontree.dumps(content).encode(), 0o644)
    except OSError:
        pass  # a cache that can't be kept costs time, not the container


def _as_json(root: str, found: DriverFiles) -> dict[str, Any]:
    content: dict[str, Any] = {
        "version": found.version,
        "folder": found.folder,
        "libraries": found.libraries,
        "libraries_32_bit": found.libraries_32_bit,
        "files": found.other,
        "looked_in": found.looked_in,
    }
    content["key"] = _files_key(root, content)
    return content


def _files_key(root: str, found: Any) -> list[Any] | None:
    """Changes with whatever the scan looked at; None: not what a scan leaves."""
    if not isinstance(found, dict):
        return None
    tables = (found.get("libraries"), found.get("libraries_32_bit"), found.get("files"))
    texts = (found.get("version"), found.get("folder"))
    looked_in = found.get("looked_in")
    if not (all(map(_is_table, tables)) and all(map(_is_text, texts))):
        return None
    if not isinstance(looked_in, list) or not all(map(_is_text, looked_in)):
        return None
    return [root, *map(_stamp, looked_in), _text(f"{root}/proc/driver/nvidia/version")]


def _is_table(table: object) -> bool:
    return isinstance(table, dict) and all(map(_is_text, table.values()))


def _is_text(value: object) -> bool:
    # A NUL or half of a character is in no path that a scan kept as it was.
    return isinstance(value, str) and value.isprintable()


def _stamp(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_dev, status.st_ino, status.st_mtime_ns]


def _text(path: str) -> str:
    try:
        return files.read(path, 1 << 16).decode("utf-8", "replace")
    except OSError:
        return ""


def _told_as_json(told: NvmlAnswer, key: list[Any]) -> dict[str, Any] | None:
    """None: a GPU is missing, which may be back for the next container."""
    if told.silent:
        return None
    gpus = [gpu.__dict__ for gpu in told.gpus]
    return {"key": key, "gpus": gpus, "cuda": told.cuda, "distances": told.distances}


def _kept_told(told: Any, key: list[Any]) -> NvmlAnswer | None:
    """None: not what NVML told of these GPUs, whole."""
    try:
        gpus = [_kept_gpu(**gpu) for gpu in told["gpus"]] if told["key"] == key else None
        cuda, distances = told["cuda"], told["distances"]
    except (KeyError, TypeError, AttributeError):
        return None
    if gpus is None or not isinstance(cuda, str):
        return None
    if distances is not None and not topology.are_distances(distances, len(gpus)):
        return None
    return NvmlAnswer(gpus, cuda, distances)


def _kept_gpu(**fields: Any) -> Gpu:
    gpu = Gpu(**fields)
    for name, value in gpu.__dict__.items():
        is_number = name in ("index", "minor", "memory_bytes")
        if name == "mig":
            right = value is None or (type(value) is list and list(map(type, value)) == [int] * 3)
        elif name == "divided":
            right = type(value) is bool
        else:
            right = type(value) is int and value >= 0 if is_number else _is_text(value)
        if not right:
            raise TypeError("not a GPU")
    if not 0 < gpu.memory_bytes < 1 << 60:
        raise TypeError("not a GPU's memory")
    return gpu


def gpus_key(root: str, library: str) -> list[Any]:
    """Changes with NVML's file, the kernel's driver, the GPUs that it drives and their parts.

    Raises VcudaError: there is no such file.
    """
    gpus = sorted(device_nodes.listed(f"{root}/proc/driver/nvidia/gpus"))
    # MIG devices come and go while the driver runs. Source: nodes.of_gpu.
    parts = f"{root}/proc/driver/nvidia/capabilities"
    for gpu in sorted(device_nodes.listed(parts)):
        for instance in sorted(device_nodes.listed(f"{parts}/{gpu}/mig")):
            inside = sorted(device_nodes.listed(f"{parts}/{gpu}/mig/{instance}"))
            gpus += [f"{gpu}/{instance}/{part}" for part in ("", *inside)]
    try:
        status = os.stat(library)
    except OSError as error:
        raise VcudaError(
            f"no NVML: {error.strerror}", library, "reinstall the driver, whole"
        ) from error
    stamp = (status.st_ino, status.st_mtime_ns)
    return [root, library, *stamp, _text(f"{root}/proc/driver/nvidia/version"), *gpus]
