"""NVML's answer about all GPUs: `nvml` asks for it, `facts_cache` stores it."""

from __future__ import annotations

from ..model.errors import VcudaError
from ..model.gpu import Gpu

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class NvmlAnswer:
    """gpus: those that answered. cuda: the newest CUDA version that the driver supports, "13.0".

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
