"""Read pods and nodes of the public trace of Alibaba's cluster of shared GPUs.

Source: alibaba/clusterdata, cluster-trace-gpu-v2023, README.md and csv/openb_*_list_*.csv.
"""

from __future__ import annotations

import math
import re
from typing import Any

from .rows import MOST_SECONDS, check_keys, number
from .trace_pod import TracePod

POD_COLUMNS = (
    "name", "cpu_milli", "memory_mib", "num_gpu", "gpu_milli", "gpu_spec",
    "qos", "pod_phase", "creation_time", "deletion_time", "scheduled_time",
)  # fmt: skip
# Columns that only the public trace has; they distinguish its lines from ours.
OWN = frozenset(POD_COLUMNS[1:])
NODE_COLUMNS = ("sn", "cpu_milli", "memory_mib", "gpu", "model")
_NAME = re.compile(r"[\w.-]{1,63}", re.ASCII)


def pod(fields: dict[str, Any]) -> TracePod | None:
    """Read a pod; None: it requests no GPU. Raises ValueError.

    The pod arrives at its creation time and runs as long as it ran in the trace. A pod that never
    ran there runs from its creation to its deletion. Its namespace is its class of service, in
    small letters.
    """
    check_keys(fields, POD_COLUMNS)
    count = number(fields, "num_gpu", int, 0, 64)
    if not count:
        return None
    core = math.ceil(number(fields, "gpu_milli", int, 1, 1000) / 10)
    arrival = number(fields, "creation_time", float, 0, MOST_SECONDS)
    duration = None
    if "deletion_time" in fields:
        begun = arrival
        if "scheduled_time" in fields:
            begun = number(fields, "scheduled_time", float, arrival, MOST_SECONDS)
        duration = number(fields, "deletion_time", float, begun, MOST_SECONDS) - begun
    models = str(fields.get("gpu_spec", "")).split("|")
    return TracePod(
        _text(fields, "name"),
        arrival,
        duration,
        core,
        count=count,
        model=",".join(filter(None, models)),
        namespace=str(fields.get("qos", "default")).lower(),
    )


def node(fields: dict[str, Any]) -> tuple[str, int, str]:
    """Read a node: its name, number of GPUs, and model, "" without GPUs. Raises ValueError."""
    check_keys(fields, NODE_COLUMNS)
    gpus = number(fields, "gpu", int, 0, 1000)
    return _text(fields, "sn"), gpus, _text(fields, "model") if gpus else ""


def _text(fields: dict[str, Any], key: str) -> str:
    name = fields.get(key)
    if not isinstance(name, str):
        raise ValueError(f"no {key}")
    if not _NAME.fullmatch(name):
        raise ValueError(f"{key} cannot be '{name[:40]}'")
    return name
