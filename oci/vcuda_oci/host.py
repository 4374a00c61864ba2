"""What the host has: GPUs, device nodes and the driver's files, found below a driver root.

A driver root is ``/`` where the driver is installed on the host, and a folder with the same layout
where it lives in a container (or is made of software).
"""

from __future__ import annotations

import os

from . import files, jsontree
from .errors import VcudaError
from .placement import Gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

LIBRARY_FOLDERS = (
    "/usr/lib/x86_64-linux-gnu",
    "/usr/lib/aarch64-linux-gnu",
    "/usr/lib64",
    "/usr/lib",
)
CONTROL_NODES = ("nvidiactl", "nvidia-uvm", "nvidia-uvm-tools")
BINARIES = ("/usr/bin/nvidia-smi",)


class DeviceNode:
    """A character device that containers get. path: as the container sees it."""

    def __init__(self, path: str, major: int, minor: int) -> None:
        self.path, self.major, self.minor = path, major, minor


class Host:
    """Facts of one driver root.

    libraries: folder on the host and, by name, each file or symlink in it that carries the
    driver's version. nodes: by name below /dev. binaries: paths below the root.
    """

    def __init__(self, root: str, version: str, folder: str, gpus: list[Gpu]) -> None:
        self.root, self.version, self.folder, self.gpus = root, version, folder, gpus
        self.libraries: dict[str, str] = {}
        self.nodes: dict[str, DeviceNode] = {}
        self.binaries: list[str] = []

    def gpu(self, uuid: str) -> Gpu | None:
        return next((gpu for gpu in self.gpus if gpu.uuid == uuid), None)


def load(root: str, cache: str) -> Host:
    """The host's facts. What NVML told is kept in the file `cache` until the driver changes.

    Raises VcudaError: no driver below `root`, or NVML does not answer.
    """
    root = root.rstrip("/")
    version, folder = _driver(root)
    libraries = _libraries(folder, version)
    host = Host(root, version, folder, _gpus(root, folder, version, cache))
    host.libraries = libraries
    host.binaries = [path for path in BINARIES if os.path.isfile(root + path)]
    for name in (*CONTROL_NODES, *(f"nvidia{gpu.minor}" for gpu in host.gpus)):
        try:
            status = os.stat(f"{root}/dev/{name}")
        except OSError:
            continue
        if status.st_mode & 0o170000 == 0o020000:
            number = status.st_rdev
            host.nodes[name] = DeviceNode("/dev/" + name, os.major(number), os.minor(number))
    return host


def _driver(root: str) -> tuple[str, str]:
    """Version and library folder, by the file that libcuda.so.1 stands for in the end."""
    for folder in LIBRARY_FOLDERS:
        path = _final(root, f"{folder}/libcuda.so.1")
        version = os.path.basename(path).partition(".so.")[2]
        # A driver's version has a dot. Without one it is no version but the soname's number, which
        # half of all libraries end in.
        if "." in version and os.path.isfile(root + path):
            return version, root + os.path.dirname(path)
    raise VcudaError(
        "no NVIDIA driver: libcuda.so.1 is in no library folder",
        root or "/",
        "install the driver, or set driver-root in config.toml to the folder that holds it",
    )


def _final(root: str, path: str) -> str:
    """What the symlinks at `path` lead to, absolute ones below `root` as inside it.

    Debian's own packages go by /etc/alternatives to a folder of the driver's own.
    """
    for _ in range(40):  # as many as the kernel follows
        try:
            target = os.readlink(root + path)
        except OSError:
            return path
        path = os.path.normpath(os.path.join(os.path.dirname(path), target))
    return ""


def _libraries(folder: str, version: str) -> dict[str, str]:
    """File or soname link -> the versioned file it stands for."""
    found = {}
    suffix = ".so." + version
    for name in os.listdir(folder):
        if name.endswith(suffix):
            found[name] = name
        elif ".so." in name and os.path.islink(f"{folder}/{name}"):
            target = os.readlink(f"{folder}/{name}")
            if target.endswith(suffix) and "/" not in target:
                found[name] = target
    return found


def _gpus(root: str, folder: str, version: str, cache: str) -> list[Gpu]:
    key = _cache_key(root, folder, version)
    try:
        kept: Any = jsontree.loads(files.read(cache, 1 << 20).decode())
        if kept["key"] == key:
            return [_kept_gpu(**gpu) for gpu in kept["gpus"]]
    except (OSError, ValueError, KeyError, TypeError):
        pass  # no cache, or not of this version, or not whole: ask again
    from . import nvml  # ctypes and the driver: only when the cache does not know

    gpus = nvml.inventory(f"{folder}/libnvidia-ml.so.{version}")
    content = jsontree.dumps({"key": key, "gpus": [gpu.__dict__ for gpu in gpus]})
    try:
        os.makedirs(os.path.dirname(cache), 0o755, exist_ok=True)
        # Two that ask at once write the same; what a reader sees half-written is no cache to it.
        files.replace(cache, content.encode(), 0o644)
    except OSError:
        pass  # a cache that can't be kept costs time, not the container
    return gpus


def _kept_gpu(uuid: str, index: int, minor: int, memory_bytes: int, model: str) -> Gpu:
    numbers = all(type(number) is int for number in (index, minor, memory_bytes))
    if not (isinstance(uuid, str) and isinstance(model, str) and numbers):
        raise TypeError("not a GPU")
    return Gpu(uuid, index, minor, memory_bytes, model)


def _cache_key(root: str, folder: str, version: str) -> list[Any]:
    """Changes with the driver's files, its load, and the GPUs that it drives."""
    try:
        gpus = sorted(os.listdir(f"{root}/proc/driver/nvidia/gpus"))
    except OSError:
        gpus = []
    library = f"{folder}/libnvidia-ml.so.{version}"
    try:
        status = os.stat(library)
    except OSError as error:
        raise VcudaError(
            f"no NVML: {error.strerror}", library, "reinstall the driver, whole"
        ) from error
    return [root, version, status.st_ino, status.st_mtime_ns, *gpus]
