"""The cache of a host's facts: a JSON file with the results of the driver scan and of NVML.

Each result has a key that is computed from its inputs, and is stale when the key changes.
"""

from __future__ import annotations

import os

from ..model import jsontree, topology
from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..model.names import STATIC
from ..system import files
from . import device_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

# The cache as last read, by path and stamp: the claim socket reads it for each request.
_latest: dict[tuple[str, tuple[int, ...]], dict[str, Any]] = {}


class NvmlAnswer:
    """NVML's answer about all GPUs.

    gpus: those that answered. cuda: the newest CUDA version that the driver supports, "13.0".
    distances: between the GPUs, see topology. silent: error of each other GPU, by index; empty in
    an answer from the cache.
    """

    def __init__(
        self,
        gpus: list[Gpu],
        cuda: str,
        distances: list[list[int]] | None,
        silent: Mapping[int, VcudaError] | None = None,
    ) -> None:
        self.gpus, self.cuda, self.distances = gpus, cuda, distances
        self.silent = dict(silent or {})


def read(cache: str) -> dict[str, Any]:
    """The content of the cache; {}: none, or not whole. Do not modify it."""
    key = (cache, files.stamp(cache))
    known = _latest.get(key)
    if known:
        return known
    try:
        # Not if others may write it: the cache decides which files of the host containers get.
        content = jsontree.loads(files.read_ours(cache, 1 << 22))
    except (OSError, ValueError):
        return {}
    if not isinstance(content, dict):
        return {}
    _latest.clear()
    if key[1]:
        _latest[key] = content
    return content


def write(cache: str, content: dict[str, Any]) -> None:
    try:
        os.makedirs(os.path.dirname(cache), 0o755, exist_ok=True)
        # No lock: writers write the same content, and a reader ignores a cache that is not whole.
        files.replace(cache, jsontree.dumps(content).encode(), 0o644)
    except OSError:
        pass  # without a cache the next start is slower


def files_key(root: str, found: Any) -> list[Any] | None:
    """The key of a scan's result: of all folders and files that the scan read.

    None: `found` is not the result of a scan.
    """
    if not isinstance(found, dict):
        return None
    tables = (found.get("libraries"), found.get("libraries_32_bit"), found.get("files"))
    texts = (found.get("version"), found.get("folder"))
    looked_in = found.get("looked_in")
    if not (all(map(_is_table, tables)) and all(map(_is_text, texts))):
        return None
    if not isinstance(looked_in, list) or not all(map(_is_text, looked_in)):
        return None
    return [root, *map(_stamp, looked_in), files.text(f"{root}/proc/driver/nvidia/version")]


def _is_table(table: object) -> bool:
    return isinstance(table, dict) and all(map(_is_text, table.values()))


def _is_text(value: object) -> bool:
    # No path with a control character or a lone surrogate comes from a scan.
    return isinstance(value, str) and value.isprintable()


def _stamp(path: str) -> list[int]:
    try:
        status = os.stat(path)
    except OSError:
        return []
    return [status.st_dev, status.st_ino, status.st_mtime_ns]


def answer_as_json(answer: NvmlAnswer, key: list[Any]) -> dict[str, Any] | None:
    """The answer for the cache; None: a GPU is silent, so ask again for the next container."""
    if answer.silent:
        return None
    gpus = [gpu.__dict__ for gpu in answer.gpus]
    return {"key": key, "gpus": gpus, "cuda": answer.cuda, "distances": answer.distances}


def cached_answer(content: Any, key: list[Any]) -> NvmlAnswer | None:
    """The answer from the cache; None: stale, or not whole."""
    try:
        gpus = [_cached_gpu(**gpu) for gpu in content["gpus"]] if content["key"] == key else None
        cuda, distances = content["cuda"], content["distances"]
    except (KeyError, TypeError, AttributeError):
        return None
    if gpus is None or not isinstance(cuda, str):
        return None
    if distances is not None and not topology.are_distances(distances, len(gpus)):
        return None
    return NvmlAnswer(gpus, cuda, distances)


def _cached_gpu(**fields: Any) -> Gpu:
    gpu = Gpu(**fields)
    if len(fields) < len(gpu.__dict__):
        raise TypeError("written by a version that knew less of a GPU")
    for name, value in gpu.__dict__.items():
        is_number = name in ("index", "minor", "memory_bytes")
        if name == "mig":
            valid = value is None or (type(value) is list and list(map(type, value)) == [int] * 3)
        elif name == "divided":
            valid = type(value) is bool
        else:
            valid = type(value) is int and value >= 0 if is_number else _is_text(value)
        if not valid:
            raise TypeError("not a GPU")
    if not 0 < gpu.memory_bytes < 1 << 60:
        raise TypeError("not a GPU's memory")
    return gpu


def gpus_key(root: str, library: str, instances: str) -> list[Any]:
    """The key of NVML's answer: of its library, the kernel driver, the GPUs and their MIG devices.

    instances: the folder of records that change with each MIG device of a container, and its
    folder with those of static layouts: another MIG device may have the same number, and its UUID
    is not in the kernel's files.
    Raises VcudaError: `library` does not exist.
    """
    gpus = sorted(device_nodes.listed(f"{root}/proc/driver/nvidia/gpus"))
    # MIG devices are made and removed while the driver runs; see device_nodes.of_gpu.
    parts = f"{root}/proc/driver/nvidia/capabilities"
    for gpu in sorted(device_nodes.listed(parts)):
        for instance in sorted(device_nodes.listed(f"{parts}/{gpu}/mig")):
            inside = sorted(device_nodes.listed(f"{parts}/{gpu}/mig/{instance}"))
            gpus += [f"{gpu}/{instance}/{part}" for part in ("", *inside)]
    try:
        status = os.stat(library)
    except OSError as error:
        raise VcudaError(
            f"no NVML: {error.strerror}", library, "reinstall the whole driver"
        ) from error
    stamp = (status.st_ino, status.st_mtime_ns)
    version = files.text(f"{root}/proc/driver/nvidia/version")
    records = [_stamp(folder) for folder in (instances, f"{instances}/{STATIC}")]
    return [root, library, *stamp, *records, version, *gpus]
