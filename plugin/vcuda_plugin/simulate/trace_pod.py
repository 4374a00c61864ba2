"""A pod of a trace, and its object as the API server would write it."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.system import settings_file

from ..extender.model import annotations as known
from ..kube import pod_amounts

_WHOLE_GPU = "nvidia.com/gpu"
SETTINGS = settings_file.parse(f'gpu-resource = "{_WHOLE_GPU}"', "the simulation")
_MIB = 1 << 20


@dataclass(frozen=True)
class TracePod:
    """A pod of a trace.

    core, memory: percent and bytes of each of `count` GPUs; core may be above 100 with a count of
    1. memory None: the same part as of compute. arrival, duration: seconds; None: it never ends.
    priority: higher ones are tried first. model: parts of names, separated by commas; "": any.
    namespace: the one with the quota that counts.
    """

    name: str
    arrival: float = 0
    duration: float | None = None
    core: int = 100
    memory: int | None = None
    count: int = 1
    priority: int = 0
    model: str = ""
    namespace: str = "default"

    @property
    def gpus(self) -> float:
        """Requested compute, in GPUs."""
        return self.core * self.count / 100

    def as_object(self) -> dict[str, Any]:
        """Return the pod object as the API server writes it."""
        if self.count == 1 or self.core == 100:
            limits = {names.GPUMANAGER_CORE: self.core * self.count}
            if self.memory is not None and self.core != 100:
                blocks = math.ceil(self.memory / names.MEMORY_UNIT_BYTES)
                limits[names.GPUMANAGER_MEMORY] = blocks
        else:
            limits = {_WHOLE_GPU: self.count, _WHOLE_GPU + pod_amounts.HAMI_CORES: self.core}
            if self.memory is None:
                limits[_WHOLE_GPU + pod_amounts.HAMI_MEMORY_PERCENT] = self.core
            else:
                limits[_WHOLE_GPU + pod_amounts.HAMI_MEMORY] = math.ceil(self.memory / _MIB)
        annotations = {known.USE_MODEL[0]: self.model} if self.model else {}
        return {
            "metadata": {
                "name": self.name,
                "namespace": self.namespace,
                "uid": self.name,
                "annotations": annotations,
            },
            "spec": {"containers": [{"name": "main", "resources": {"limits": limits}}]},
        }


COLUMNS = tuple(TracePod.__dataclass_fields__)
