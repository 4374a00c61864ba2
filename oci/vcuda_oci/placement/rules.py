"""The settings that placement and claims go by, as one value."""

from __future__ import annotations

from ..model.gpu import Gpu
from ..model.record import Record
from ..system.settings_file import BINPACK, Config

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence


class Rules(Record):
    """Settings that apply to every claim, change and suspension.

    placement: one of settings_file.PLACEMENTS. overcommit: how many times a GPU's memory is
    promised. context_bytes: what a process's context on a GPU counts against its container's
    share. meter_copies: whether copies within a GPU and memsets count against compute.
    idle_suspend: as Allocation has it, for requests that do not name a time. rotates: containers
    take turns on a GPU that is promised more than once; else the driver moves their memory.
    partitions: percents of the static partitions of a GPU under MPS; none: it has none.
    host_bytes: of the host's memory, for suspended containers; 0: no bound.
    """

    def __init__(
        self,
        placement: str = BINPACK,
        overcommit: float = 1,
        context_bytes: int = 0,
        meter_copies: bool = False,
        idle_suspend: int = 0,
        rotates: bool = False,
        partitions: Sequence[int] = (),
        host_bytes: int = 0,
    ) -> None:
        self.placement, self.overcommit = placement, overcommit
        self.context_bytes, self.meter_copies = context_bytes, meter_copies
        self.idle_suspend, self.rotates, self.partitions = idle_suspend, rotates, partitions
        self.host_bytes = host_bytes

    def promised(self, gpu: Gpu) -> int:
        """Bytes of the GPU's memory that may be promised in all."""
        return int(gpu.memory_bytes * self.overcommit)

    def memory_of(self, promised: int) -> int:
        """The memory of a GPU of which so many bytes may be promised."""
        return int(promised / self.overcommit)

    def once(self) -> Rules:
        """The rules for memory that is promised once only."""
        return self if self.overcommit == 1 else self.replaced(overcommit=1)


def rules_of(settings: Config) -> Rules:
    """The rules by these settings."""
    return Rules(
        settings.placement,
        settings.memory_overcommit,
        settings.context_memory,
        settings.meter_copies,
        settings.idle_suspend,
        settings.rotates,
        settings.mps_partitions,
        settings.suspend_memory,
    )
