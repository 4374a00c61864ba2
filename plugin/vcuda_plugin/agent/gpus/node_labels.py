"""Computes a node's GPU labels, under the names of GPU Feature Discovery. Pure: no I/O.

A node with several GPU models is labelled with its most frequent one. Source: k8s-device-plugin,
"GPU Feature Discovery", "Generated Labels"; kube-apimachinery, IsValidLabelValue.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

from vcuda_oci.model.gpu import Gpu

_GPU, _CUDA = "nvidia.com/gpu.", "nvidia.com/cuda."
_MODEL = "gaia.tencent.com/gpu-model"  # quotas count by this label
KEYS = (
    *(f"{_GPU}{key}" for key in ("product", "count", "memory", "family", "replicas")),
    *(f"{_GPU}{key}" for key in ("compute.major", "compute.minor", "sharing-strategy")),
    *(f"{_CUDA}driver-version.{key}" for key in ("full", "major", "minor", "revision")),
    *(f"{_CUDA}runtime-version.{key}" for key in ("full", "major", "minor")),
    _MODEL,
)
_MOST_LETTERS = 63
_NONE, _TIME_SLICING = "none", "time-slicing"
_FAMILIES = {
    "3": "kepler", "5": "maxwell", "6": "pascal", "7": "volta", "7.5": "turing", "8": "ampere",
    "8.9": "ada-lovelace", "9": "hopper", "10": "blackwell", "11": "blackwell", "12": "blackwell",
}  # fmt: skip


def labels(gpus: Sequence[Gpu], driver: str, cuda: str, replicas: int) -> dict[str, str]:
    """The labels by key; empty without a GPU. Keys with an unknown value are left out.

    driver: its version, such as "580.95.05". cuda: the newest CUDA version it supports, such as
    "13.0". Both "" if unknown. replicas: how many containers may share a GPU.
    """
    if not gpus:
        return {}
    model, _ = Counter(gpu.model for gpu in gpus).most_common(1)[0]
    gpu = next(gpu for gpu in gpus if gpu.model == model)
    major, _, minor = gpu.arch.partition(".")
    found = {
        f"{_GPU}product": model,
        f"{_GPU}count": str(len(gpus)),
        f"{_GPU}memory": str(gpu.memory_bytes >> 20),
        f"{_GPU}family": _FAMILIES.get(gpu.arch) or _FAMILIES.get(major, ""),
        f"{_GPU}compute.major": major,
        f"{_GPU}compute.minor": minor,
        f"{_GPU}replicas": str(replicas),
        f"{_GPU}sharing-strategy": _TIME_SLICING if replicas > 1 else _NONE,
        **_version(f"{_CUDA}driver-version.", driver, ("major", "minor", "revision")),
        **_version(f"{_CUDA}runtime-version.", cuda, ("major", "minor")),
        _MODEL: model,
    }
    legal = {key: legal_value(value) for key, value in found.items()}
    return {key: value for key, value in legal.items() if value}


def legal_value(text: str) -> str:
    """The text with all characters removed or replaced that a label's value may not have."""
    text = re.sub(r"[^A-Za-z0-9._-]+", "-", text).lstrip("._-")
    return text[:_MOST_LETTERS].rstrip("._-")


def _version(key: str, version: str, parts: Sequence[str]) -> dict[str, str]:
    return {f"{key}full": version, **{key + p: n for p, n in zip(parts, version.split("."))}}
