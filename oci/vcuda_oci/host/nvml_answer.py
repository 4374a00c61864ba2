"""What NVML reports of all GPUs: read by `nvml`, cached by `host`."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from ..model.errors import VcudaError
    from ..model.gpu import Gpu


class NvmlAnswer:
    """GPUs that answered; cuda: the newest CUDA version that the driver supports, "13.0".

    distances: between the GPUs, see topology. silent: why a GPU does not answer, by its index. Such
    a GPU is not among `gpus`. An answer that is read from the cache has no silent GPUs.
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
