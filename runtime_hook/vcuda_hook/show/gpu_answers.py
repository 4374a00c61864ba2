"""Find which GPUs answer NVML now: the cached host facts may name a lost GPU."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from vcuda_oci.host import nvml
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu

from ..live import in_time

_SECONDS = 2 * nvml.FIRST_ANSWER_SECONDS


def silent(library: str, gpus: Sequence[Gpu]) -> dict[str, str]:
    """NVML's error for each of these GPUs that does not answer, by UUID. library: NVML's file."""
    (answer,) = in_time.ask([lambda: _inventory(library)], _SECONDS)
    if isinstance(answer, in_time.Unanswered):
        return {gpu.uuid: f"unknown: {answer.reason}" for gpu in gpus}
    reasons: dict[str, str] = answer["silent"]
    every = reasons.get("", "NVML does not list it")
    return {
        gpu.uuid: reasons.get(str(gpu.index), every)
        for gpu in gpus
        if gpu.uuid not in answer["uuids"]
    }


def _inventory(library: str) -> dict[str, Any]:
    """The UUIDs of the GPUs that answer; errors by index, or by "" for all of them."""
    try:
        answer = nvml.inventory(library)
    except VcudaError as error:
        return {"uuids": [], "silent": {"": error.what}}
    silent = {str(index): error.what for index, error in answer.silent.items()}
    return {"uuids": [gpu.uuid for gpu in answer.gpus], "silent": silent}
