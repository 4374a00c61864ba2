"""The cache of a host's facts: one JSON file with what the driver scan and NVML found.

Each part has a key of what it was made from, and is used only while the key is the same.
"""

from __future__ import annotations

import os

from ..model import jsontree, topology
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..system import files
from . import device_nodes
from .nvml_answer import NvmlAnswer

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from .driver_scan import DriverFiles

# The cache as it was last read, by its path and stamp: a door is asked for it again and again.
_latest: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}


def read(cache: str) -> dict[str, Any]:
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


def write(cache: str, content: dict[str, Any]) -> None:
    try:
        os.makedirs(os.path.dirname(cache), 0o755, exist_ok=True)
        # Two that ask at once write the same; what a reader sees half-written is no cache to it.
        files.replace(cache, jsontree.dumps(content).encode(), 0o644)
    except OSError:
        pass  # a cache that can't be kept costs time, not the container


def driver_as_json(root: str, found: DriverFiles) -> dict[str, Any]:
    content: dict[str, Any] = {
        "version": found.version,
        "folder": found.folder,
        "libraries": found.libraries,
        "libraries_32_bit": found.libraries_32_bit,
        "files": found.other,
        "looked_in": found.looked_in,
    }
    content["key"] = files_key(root, content)
    return content


def files_key(root: str, found: Any) -> list[Any] | None:
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


def answer_as_json(told: NvmlAnswer, key: list[Any]) -> dict[str, Any] | None:
    """None: a GPU is missing, which may be back for the next container."""
    if told.silent:
        return None
    gpus = [gpu.__dict__ for gpu in told.gpus]
    return {"key": key, "gpus": gpus, "cuda": told.cuda, "distances": told.distances}


def cached_answer(told: Any, key: list[Any]) -> NvmlAnswer | None:
    """None: not what NVML told of these GPUs, whole."""
    try:
        gpus = [_cached_gpu(**gpu) for gpu in told["gpus"]] if told["key"] == key else None
        cuda, distances = told["cuda"], told["distances"]
    except (KeyError, TypeError, AttributeError):
        return None
    if gpus is None or not isinstance(cuda, str):
        return None
    if distances is not None and not topology.are_distances(distances, len(gpus)):
        return None
    return NvmlAnswer(gpus, cuda, distances)


def _cached_gpu(**fields: Any) -> Gpu:
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
