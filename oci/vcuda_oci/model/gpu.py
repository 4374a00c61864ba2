"""A GPU of the node, or a MIG device, which is placed and shared like a small GPU."""

from __future__ import annotations


class Gpu:
    """A GPU or a MIG device.

    index: NVML's. minor: of /dev/nvidia<minor>. A MIG device has its GPU's index and minor.
    bus_id: as the kernel writes it, "0000:01:00.0". arch: compute capability, "9.0". brand: NVML's,
    in lower case, "tesla". divided: in MIG mode, so only its MIG devices can be used. parent: UUID
    of a MIG device's GPU. mig: a MIG device's number on its GPU, its GPU instance and its compute
    instance; None: a GPU.
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
        """The short name: "1"; of a MIG device "1:0"."""
        return str(self.index) if self.mig is None else f"{self.index}:{self.mig[0]}"
