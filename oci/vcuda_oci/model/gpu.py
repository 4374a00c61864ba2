"""A GPU of the node, or a MIG device of one, which is placed and shared as a small GPU is."""

from __future__ import annotations


class Gpu:
    """index: as NVML counts; minor: of /dev/nvidia<minor>. Of a MIG device both are its GPU's.

    bus_id: as the kernel writes it, "0000:01:00.0". arch: compute capability, "9.0". brand: NVML's,
    in small letters, "tesla". divided: it is in MIG mode, and only its MIG devices are for use.
    parent: UUID of the GPU that a MIG device is of. mig: a MIG device's number on its GPU, its GPU
    instance and its compute instance; None: a GPU.
    """

    def __init__(
        self,
        uuid: str,
        index: int,
        minor: int,
        memory_bytes: int,
        model: str,
        bus_id: str = "",
        arch: str = "",
        brand: str = "",
        divided: bool = False,
        parent: str = "",
        mig: list[int] | None = None,
    ) -> None:
        self.uuid, self.index, self.minor = uuid, index, minor
        self.memory_bytes, self.model = memory_bytes, model
        self.bus_id, self.arch, self.brand = bus_id, arch, brand
        self.divided, self.parent, self.mig = divided, parent, mig

    @property
    def name(self) -> str:
        """What people call it beside its UUID: "1", a MIG device "1:0"."""
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig[0]}"
