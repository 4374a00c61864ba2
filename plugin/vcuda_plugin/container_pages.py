"""The two pages of one container, open: its use is read, its grants are written in place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vcuda_oci import pages
from vcuda_oci.limits_in_place import OpenPage
from vcuda_oci.policies import FIXED

from .arbiter import PPM_PER_PERCENT
from .demand import Demand, reading

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from vcuda_oci.allocation import Allocation

    from .demand import Sign

# A grant that is not renewed for so long is void: the shim goes back to what is reserved.
LEASE_NS = 1_000_000_000
# So often all grants are renewed.
RENEWAL_NS = LEASE_NS * 2 // 5


class ContainerPages:
    """Grants and restores need the turn (limits_in_place), and the page as it was left."""

    def __init__(self, folder: str, allocation: Allocation) -> None:
        """Raises OSError, or ValueError: the pages are not those of the allocation."""
        self.allocation = allocation
        self.demands = [Demand() for _ in allocation.shares]
        self.rates = self._reserved = [
            share.core_percent * PPM_PER_PERCENT for share in allocation.shares
        ]
        self._is_fixed = all(share.policy == FIXED for share in allocation.shares)
        self._gpus_end = pages.USAGE_HEAD_SIZE + len(allocation.shares) * pages.USAGE_GPU_SIZE
        self._until_ns = 0
        self._page, self._read_ns = b"", 0
        flags = os.O_NOFOLLOW | os.O_CLOEXEC
        self._limits = OpenPage(folder + "/limits", allocation.shares)
        try:
            # That it was read is not written, which costs more than the reading.
            self._usage = os.open(folder + "/usage", os.O_RDONLY | os.O_NOATIME | flags)
        except BaseException:
            self._limits.close()
            raise

    def read(self, clock: Callable[[], int]) -> bool:
        """Whether the container's page says anything else than it did. Raises OSError.

        Read, not mapped: whoever may write the file may also cut it short under a mapping.
        """
        before = self._page
        self._page, self._read_ns = os.pread(self._usage, self._gpus_end, 0), clock()
        return self._page != before

    def sign(self, gpu: int) -> Sign:
        """What the page that was read last shows of this share's use."""
        return self.demands[gpu].see(reading(self._page, gpu, self._read_ns))

    def grant(self, rates: list[int], now_ns: int, renew: bool) -> None:
        """Let the rates count from now, for LEASE_NS unless renewed. Raises OSError.

        renew: those that stand as well.

        Nothing is granted beside what is reserved where no policy allows it.
        """
        if self._is_fixed:
            return
        # What a killed arbiter wrote last must not be renewed for what is reserved.
        if rates != self.rates or not self._until_ns:
            self._write(rates, now_ns + LEASE_NS)
        elif renew:
            # The rates stand: one aligned word, so the shim sees the old end or the new one.
            self._limits.renew(now_ns + LEASE_NS)
            self._until_ns = now_ns + LEASE_NS

    def restore(self) -> None:
        """What is reserved counts again, for ever. Raises OSError."""
        if self._until_ns:
            self._write(self._reserved, 0)

    def close(self) -> None:
        self._limits.close()
        os.close(self._usage)

    def _write(self, rates: Sequence[int], until_ns: int) -> None:
        page = self._limits
        page.begin()
        # A grant must never stand without its end, whenever we are killed.
        if until_ns:
            page.put("limits.rate_until_ns", "=Q", until_ns)
        for gpu, rate in enumerate(rates):
            page.put("limits_gpu.rate_ppm", "=I", rate, gpu)
        if not until_ns:
            page.put("limits.rate_until_ns", "=Q", 0)
        page.end()
        self.rates, self._until_ns = list(rates), until_ns
