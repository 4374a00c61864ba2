"""``/proc/driver/nvidia`` as a container may see it: its own GPUs, and no leave to make nodes.

The driver's own libraries read `params` there and, as root, would make and change the nodes of GPUs
in /dev. A copy is what a container gets, since what stands there changes with the driver only.
"""

from __future__ import annotations

import os

from ..model.errors import VcudaError
from ..system import files
from . import device_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from ..model.gpu import Gpu

_MOST_BYTES = 1 << 16


def write(kernel: str, folder: str, gpus: Sequence[Gpu]) -> None:
    """Write what a container with these GPUs sees of the folder `kernel` into `folder`, anew.

    A folder that says it already stays as it is: another door of the same container may have
    mounted it. Raises VcudaError with nothing but the folder left behind.
    """
    texts = {"params": _modifying_nothing(_read(kernel + "/params"), "ModifyDeviceFiles")}
    if version := _read(kernel + "/version"):
        texts["version"] = version
    for gpu in gpus:
        for name in ("information", "numa_status", "power"):
            place = f"gpus/{gpu.bus_id}/{name}"
            if gpu.bus_id and (text := _read(f"{kernel}/{place}")):
                texts[place] = text
        for path in _capabilities(kernel, gpu):
            place = os.path.relpath(path, kernel)
            texts[place] = _modifying_nothing(_read(path), "DeviceFileModify")
    if _texts_in(folder) == texts:
        return
    try:
        files.remove_tree(folder)
        for place, text in texts.items():
            os.makedirs(os.path.dirname(f"{folder}/{place}"), 0o755, exist_ok=True)
            files.replace(f"{folder}/{place}", text.encode(), 0o444)
    except OSError as error:
        raise VcudaError(
            f"cannot be written: {error.strerror}", folder, "free space there, or set state-dir"
        ) from error


def _capabilities(kernel: str, gpu: Gpu) -> list[str]:
    """The files of its MIG capabilities."""
    if gpu.mig:
        return [path for path in device_nodes.access_files(kernel, gpu) if os.path.exists(path)]
    folder = f"{kernel}/capabilities/gpu{gpu.minor}"
    return [f"{path}/{name}" for path, _, names in os.walk(folder) for name in names]


def _texts_in(folder: str) -> dict[str, str]:
    return {
        os.path.relpath(f"{path}/{name}", folder): _read(f"{path}/{name}")
        for path, _, names in os.walk(folder)
        for name in names
    }


def _modifying_nothing(text: str, key: str) -> str:
    """The text with this key's line set to 0, added if it is missing."""
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip() != key]
    return "\n".join([*lines, f"{key}: 0", ""])


def _read(path: str) -> str:
    try:
        return files.read(path, _MOST_BYTES).decode("utf-8", "replace")
    except OSError:
        return ""
