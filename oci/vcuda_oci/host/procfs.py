"""Write the copy of ``/proc/driver/nvidia`` that a container gets, with only its own GPUs.

The driver's libraries read `params` there. By the host's values they would make and change device
nodes in the container's /dev if they run as root, so the copy forbids that. The content of the
folder changes with the driver only, so a copy stays valid.
"""

from __future__ import annotations

import os

from ..model.errors import VcudaError
from ..model.gpu import Gpu
from ..system import files
from . import device_nodes

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


def write(kernel: str, folder: str, gpus: Sequence[Gpu]) -> None:
    """Write the part of `kernel` that a container with these GPUs sees to `folder`.

    A folder with the same content stays: another entry point of the same container may have mounted
    it. Raises VcudaError and leaves only the folder.
    """
    texts = {"params": _with_zero(files.text(kernel + "/params"), "ModifyDeviceFiles")}
    if version := files.text(kernel + "/version"):
        texts["version"] = version
    for gpu in gpus:
        for name in ("information", "numa_status", "power"):
            place = f"gpus/{gpu.bus_id}/{name}"
            if gpu.bus_id and (text := files.text(f"{kernel}/{place}")):
                texts[place] = text
        for path in _capabilities(kernel, gpu):
            place = os.path.relpath(path, kernel)
            texts[place] = _with_zero(files.text(path), "DeviceFileModify")
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
    """The files of a GPU's MIG capabilities."""
    if gpu.mig:
        return [path for path in device_nodes.access_files(kernel, gpu) if os.path.exists(path)]
    folder = f"{kernel}/capabilities/gpu{gpu.minor}"
    return [f"{path}/{name}" for path, _, names in os.walk(folder) for name in names]


def _texts_in(folder: str) -> dict[str, str]:
    return {
        os.path.relpath(f"{path}/{name}", folder): files.text(f"{path}/{name}")
        for path, _, names in os.walk(folder)
        for name in names
    }


def _with_zero(text: str, key: str) -> str:
    """The text with the value of `key` set to 0; the line is added if it is missing."""
    lines = [line for line in text.splitlines() if line.partition(":")[0].strip() != key]
    return "\n".join([*lines, f"{key}: 0", ""])
