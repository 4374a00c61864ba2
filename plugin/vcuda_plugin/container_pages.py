"""The two pages of one container, open: its use is read, its grants are written in place."""

from __future__ import annotations

import os
import struct
from typing import TYPE_CHECKING

from vcuda_oci import pages, pages_read

from .arbiter import PPM_PER_PERCENT
from .demand import GPUS_END, Demand, Reading, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcuda_oci.allocation import Allocation

# A grant that is not renewed for so long is void: the shim goes back to what is reserved.
LEASE_NS = 1_000_000_000

_AT = {name: at for name, at, _ in pages.offsets()}


class ContainerPages:
    """Nobody else writes in place meanwhile: one arbiter runs on a node."""

    def __init__(self, folder: str, allocation: Allocation) -> None:
        """Raises OSError, or ValueError: the pages are not those of the allocation."""
        self.allocation = allocation
        self.demands = [Demand() for _ in allocation.shares]
        self.rates = self._reserved = [
            share.core_percent * PPM_PER_PERCENT for share in allocation.shares
        ]
        self._until_ns = 0
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        self._limits = os.open(folder + "/limits", os.O_RDWR | flags)
        try:
            self._usage = os.open(folder + "/usage", os.O_RDONLY | flags)
            try:
                page = pages_read.read_limits(os.pread(self._limits, pages.LIMITS_SIZE, 0))
                if [gpu.uuid for gpu in page.gpus] != [share.uuid for share in allocation.shares]:
                    raise ValueError("the limits page names other GPUs than the record")
                self._sequence = page.sequence
            except BaseException:
                os.close(self._usage)
                raise
        except BaseException:
            os.close(self._limits)
            raise

    def read(self, clock: Callable[[], int]) -> list[Reading | None]:
        """What the container says of each share's use. Raises OSError.

        Read, not mapped: whoever may write the file may also cut it short under a mapping.
        """
        page, now = os.pread(self._usage, GPUS_END, 0), clock()
        return [reading(page, gpu, now) for gpu in range(len(self.allocation.shares))]

    def grant(self, rates: Sequence[int], now_ns: int) -> None:
        """Let the rates count from now, for LEASE_NS unless renewed. Raises OSError."""
        if list(rates) != self.rates or self._until_ns - now_ns < LEASE_NS // 2:
            self._write(rates, now_ns + LEASE_NS)

    def restore(self) -> None:
        """What is reserved counts again, for ever. Raises OSError."""
        if self._until_ns:
            self._write(self._reserved, 0)

    def close(self) -> None:
        os.close(self._limits)
        os.close(self._usage)

    def _write(self, rates: Sequence[int], until_ns: int) -> None:
        # What a killed arbiter left odd becomes even with the next write.
        self._sequence |= 1
        self._put("limits.sequence", "=Q", self._sequence)
        # A grant must never stand without its end, whenever we are killed.
        if until_ns:
            self._put("limits.rate_until_ns", "=Q", until_ns)
        for gpu, rate in enumerate(rates):
            table_at = _AT["limits.gpu"] + gpu * pages.LIMITS_GPU_SIZE
            self._put("limits_gpu.rate_ppm", "=I", rate, table_at)
        if not until_ns:
            self._put("limits.rate_until_ns", "=Q", 0)
        self._sequence += 1
        self._put("limits.sequence", "=Q", self._sequence)
        self.rates, self._until_ns = list(rates), until_ns

    def _put(self, field: str, code: str, value: int, table_at: int = 0) -> None:
        os.pwrite(self._limits, struct.pack(code, value), table_at + _AT[field])
