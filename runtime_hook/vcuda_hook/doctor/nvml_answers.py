"""Check whether NVML answers, and whether the driver stays loaded between programs."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.host import driver_scan, nvml
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from . import finding
from .finding import ERROR, OK, UNKNOWN, WARNING, Finding

ANSWERS, PERSISTENCE = "nvml", "persistence"
CHECKS = (ANSWERS, PERSISTENCE)


@dataclass
class Gpu:
    """persists: whether persistence mode is on; None: unknown."""

    index: int
    uuid: str
    persists: bool | None


def examine(settings: Config) -> list[Finding]:
    try:
        gpus = read_host(settings.driver_root.rstrip("/"))
    except VcudaError as error:
        return [finding.of_error(ANSWERS, error), _not_examined()]
    return [answers(gpus), *persistence(gpus)]


def unanswered(reason: str) -> list[Finding]:
    """The findings if `examine` did not answer in time."""
    hint = "look for Xid and NVRM lines in 'dmesg'; reset the GPU, or reboot"
    found = Finding(ANSWERS, ERROR, reason, "libnvidia-ml.so.1", hint)
    return [found, _not_examined()]


def read_host(root: str) -> list[Gpu]:
    """Ask NVML. Raises VcudaError: no NVML, or an error. May hang as the driver does."""
    found = driver_scan.find(root)
    default = f"{found.folder}/libnvidia-ml.so.{found.version}"
    path = found.libraries.get("libnvidia-ml.so.1", default)
    answer = nvml.inventory(path)
    for error in answer.silent.values():
        raise error
    library = ctypes.CDLL(path)
    library.nvmlInit_v2()
    gpus = [gpu for gpu in answer.gpus if gpu.mig is None]
    return [Gpu(gpu.index, gpu.uuid, _persists(library, gpu.uuid)) for gpu in gpus]


def answers(gpus: Sequence[Gpu]) -> Finding:
    if not gpus:
        hint = "look for NVRM lines in 'dmesg', and for the GPU in 'lspci -d 10de:'"
        return Finding(ANSWERS, ERROR, "NVML counts no GPU", "nvmlDeviceGetCount", hint)
    return Finding(ANSWERS, OK, f"counts {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}")


def persistence(gpus: Sequence[Gpu]) -> list[Finding]:
    off = [f"GPU {gpu.index} ({gpu.uuid})" for gpu in gpus if gpu.persists is False]
    if off:
        what = (
            "persistence mode is off: while no program runs the driver lets the GPU go, and the "
            "next start waits for it"
        )
        hint = "run 'systemctl enable --now nvidia-persistenced', or 'nvidia-smi -pm 1'"
        return [Finding(PERSISTENCE, WARNING, what, ", ".join(off), hint)]
    if not gpus or any(gpu.persists is None for gpu in gpus):
        return [_unknown("the driver gives no answer")]
    return [Finding(PERSISTENCE, OK, "on")]


def _not_examined() -> Finding:
    what = "not checked: NVML does not answer"
    return Finding(PERSISTENCE, UNKNOWN, what, hint="fix that first")


def _unknown(what: str) -> Finding:
    return Finding(PERSISTENCE, UNKNOWN, what, hint="look at 'nvidia-smi -q -d PERFORMANCE'")


def _persists(library: ctypes.CDLL, uuid: str) -> bool | None:
    """Whether persistence mode is on. Source: nvml.h, nvmlDeviceGetPersistenceMode;
    nvmlEnableState_t.
    """
    device, mode = ctypes.c_void_p(), ctypes.c_uint()
    try:
        failed = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        failed = failed or library.nvmlDeviceGetPersistenceMode(device, ctypes.byref(mode))
    except AttributeError:
        return None
    return None if failed else mode.value == 1
