"""A container's request: a list of parts of GPUs, and the terms on which it gets them."""

from __future__ import annotations

from .policies import Terms
from .record import Record

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Any

ALL_GPUS = "all"


class Part(Record):
    """A share of one GPU, whole GPUs, or both.

    core: percent of one GPU's time; 150 is one whole GPU and half of another; 0: every GPU that the
    request may use, whole. memory_bytes, memory_percent: of the fraction below a whole GPU; both
    None: the same percentage as core.
    """

    def __init__(
        self, core: int, memory_bytes: int | None = None, memory_percent: int | None = None
    ) -> None:
        self.core, self.memory_bytes, self.memory_percent = core, memory_bytes, memory_percent

    @property
    def sizes(self) -> list[int]:
        """Core percent of each share that this part becomes: the whole GPUs first."""
        whole, fraction = divmod(self.core, 100)
        return [100] * whole + ([fraction] if fraction else [])

    def memory_of(self, core: int, gpu_bytes: int) -> int:
        """Bytes of a share with `core` percent, one of `sizes`, on a GPU with `gpu_bytes`."""
        if core == 100:
            return gpu_bytes
        if self.memory_bytes is not None:
            return self.memory_bytes
        percent = core if self.memory_percent is None else self.memory_percent
        return gpu_bytes * percent // 100


class Request(Record):
    """Parts of GPUs; where there are several, each goes to a different GPU.

    gpus: UUIDs or indexes to choose from; empty: any. terms: the compute policy, which does not
    apply to whole GPUs. placement: "": the order from the settings. counted: the number of GPUs
    that the kubelet counted, where only the pod's object gives the parts; 0 for other requests.
    While counted is set and the pod's object was not read, parts is empty.
    """

    def __init__(
        self,
        parts: Sequence[Part],
        gpus: tuple[str, ...] = (),
        terms: Terms | None = None,
        placement: str = "",
        counted: int = 0,
    ) -> None:
        self.parts, self.gpus, self.terms = tuple(parts), gpus, terms or Terms()
        self.placement, self.counted = placement, counted

    @classmethod
    def of(
        cls,
        core: int,
        memory_bytes: int | None = None,
        gpus: tuple[str, ...] = (),
        terms: Terms | None = None,
        placement: str = "",
    ) -> Request:
        """A request of one part."""
        return cls([Part(core, memory_bytes)], gpus, terms, placement)

    @property
    def core(self) -> int:
        """Percent of one GPU's time, as far as the container's own request gives it."""
        return 100 * self.counted or sum([part.core for part in self.parts])

    @property
    def memory_bytes(self) -> int | None:
        return None if self.counted or not self.parts else self.parts[0].memory_bytes

    def as_json(self) -> dict[str, Any]:
        """What the record keeps, to recognise the same request when the container comes back."""
        parts = [[p.core, p.memory_bytes, p.memory_percent] for p in self.parts]
        return {
            "core": self.core,
            "memory_bytes": self.memory_bytes,
            "gpus": list(self.gpus),
            **self.terms.as_json(),
            "placement": self.placement,
            **({"parts": parts} if self.counted and parts else {}),
        }
