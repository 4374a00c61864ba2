"""Check whether NVML answers, whether the driver stays loaded between programs, and MIG mode."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from dataclasses import dataclass

from vcuda_oci.host import driver_scan, nvml
from vcuda_oci.model import policies
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from . import finding
from .finding import ERROR, OK, UNKNOWN, WARNING, Finding

ANSWERS, PERSISTENCE, MIG_MODE = "nvml", "persistence", "mig-mode"
CHECKS = (ANSWERS, PERSISTENCE, MIG_MODE)


@dataclass
class Gpu:
    """persists: persistence mode, 0: off, 1: on; None: unknown. parts: MIG devices; None: not in
    MIG mode."""

    index: int
    uuid: str
    persists: int | None
    parts: int | None = None


def examine(settings: Config) -> list[Finding]:
    try:
        gpus = read_host(settings.driver_root.rstrip("/"))
    except VcudaError as error:
        return [finding.of_error(ANSWERS, error), *_not_examined()]
    return [answers(gpus), *persistence(gpus), mig_mode(gpus, settings.isolation)]


def unanswered(reason: str) -> list[Finding]:
    """The findings if `examine` did not answer in time."""
    hint = "look for Xid and NVRM lines in 'dmesg'; reset the GPU, or reboot"
    found = Finding(ANSWERS, ERROR, reason, "libnvidia-ml.so.1", hint)
    return [found, *_not_examined()]


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
    parts = [gpu.parent for gpu in answer.gpus]
    return [
        Gpu(
            gpu.index,
            gpu.uuid,
            mode_of(library, gpu.uuid, "nvmlDeviceGetPersistenceMode"),
            parts.count(gpu.uuid) if gpu.divided else None,
        )
        for gpu in gpus
    ]


def answers(gpus: Sequence[Gpu]) -> Finding:
    if not gpus:
        hint = "look for NVRM lines in 'dmesg', and for the GPU in 'lspci -d 10de:'"
        return Finding(ANSWERS, ERROR, "NVML counts no GPU", "nvmlDeviceGetCount", hint)
    return Finding(ANSWERS, OK, f"counts {len(gpus)} GPU{'s' if len(gpus) > 1 else ''}")


def persistence(gpus: Sequence[Gpu]) -> list[Finding]:
    off = [f"GPU {gpu.index} ({gpu.uuid})" for gpu in gpus if gpu.persists == 0]
    if off:
        what = (
            "persistence mode is off: while no program runs the driver lets the GPU go, and the "
            "next start waits for it"
        )
        hint = "run 'systemctl enable --now nvidia-persistenced', or 'nvidia-smi -pm 1'"
        return [Finding(PERSISTENCE, WARNING, what, ", ".join(off), hint)]
    if not gpus or any(gpu.persists is None for gpu in gpus):
        hint = "look at 'nvidia-smi -q -d PERFORMANCE'"
        return [Finding(PERSISTENCE, UNKNOWN, "the driver gives no answer", hint=hint)]
    return [Finding(PERSISTENCE, OK, "on")]


def mig_mode(gpus: Sequence[Gpu], isolation: str) -> Finding:
    """isolation: the setting."""
    divided = [gpu for gpu in gpus if gpu.parts is not None]
    empty = [f"GPU {gpu.index} ({gpu.uuid})" for gpu in divided if not gpu.parts]
    if empty and isolation == policies.TURNS:
        what = "in MIG mode without MIG devices, and isolation is turns: no container can use it"
        hint = "create MIG devices, set isolation to auto, or leave MIG mode by 'nvidia-smi -mig 0'"
        return Finding(MIG_MODE, WARNING, what, ", ".join(empty), hint)
    if isolation == policies.MIG and gpus and not divided:
        what = "no GPU is in MIG mode, and isolation is mig: every share is refused"
        hint = "set it by 'nvidia-smi -mig 1', or set isolation to auto"
        return Finding(MIG_MODE, ERROR, what, hint=hint)
    return Finding(MIG_MODE, OK, f"{len(divided)} of {len(gpus)} GPUs; isolation is {isolation}")


def _not_examined() -> list[Finding]:
    what, hint = "not checked: NVML does not answer", "fix that first"
    return [Finding(check, UNKNOWN, what, hint=hint) for check in (PERSISTENCE, MIG_MODE)]


def mode_of(library: ctypes.CDLL, uuid: str, function: str) -> int | None:
    """A mode of the GPU (nvmlEnableState_t, nvmlComputeMode_t), by the function of NVML that
    answers it; None: unknown.
    """
    device, mode = ctypes.c_void_p(), ctypes.c_uint()
    try:
        failed = library.nvmlDeviceGetHandleByUUID(uuid.encode(), ctypes.byref(device))
        failed = failed or library[function](device, ctypes.byref(mode))
    except AttributeError:
        return None
    return None if failed else mode.value
