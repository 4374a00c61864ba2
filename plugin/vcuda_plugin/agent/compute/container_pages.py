"""One container's open pages: read its use, write its grants in place."""

from __future__ import annotations

import os
from collections.abc import Callable

from vcuda_oci.guest import page_file
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.policies import FIXED
from vcuda_oci.pages import layout
from vcuda_oci.pages.limits_in_place import OpenPage

from .demand import DEMAND_FROM, DEMAND_SIZE, Demand
from .rates import PPM_PER_PERCENT

# A grant that is not renewed for this time expires: the shim returns to the reserved rate.
LEASE_NS = 1_000_000_000
# The time between two renewals.
RENEWAL_NS = LEASE_NS // 2

_DEMAND_AT = layout.USAGE_HEAD_SIZE + DEMAND_FROM


class ContainerPages:
    """An open limits page and usage page. Grants and restores need the lock of limits_in_place.

    rates: of each share, as in the limits page; due: as they shall be, see grant. seen: the part of
    the usage page that demand.reading reads; moved: it has changed since the last sample. is_off:
    the container is suspended, so it uses and wants no GPU time.
    """

    __slots__ = (
        "_is_fixed", "_limits", "_size", "_until_ns", "_usage",
        "allocation", "demands", "due", "is_off", "moved", "rates", "read_ns", "seen",
    )  # fmt: skip

    def __init__(self, folder: str, allocation: Allocation) -> None:
        """Raises OSError; ValueError: the pages are not those of the allocation."""
        self.follow(allocation)
        self.demands = [Demand() for _ in allocation.shares]
        self.rates = self._reserved()
        self.due = self._reserved()
        self.seen, self.read_ns, self.moved = b"", 0, False
        self._is_fixed = all(share.policy == FIXED for share in allocation.shares)
        self._size = (len(allocation.shares) - 1) * layout.USAGE_GPU_SIZE + DEMAND_SIZE
        self._until_ns = 0
        self._limits = OpenPage(folder + "/limits", allocation.shares)
        try:
            # Do not record the reading in the page: the write would cost more than the reading.
            self._usage = page_file.open_page(folder + "/usage", os.O_RDONLY | os.O_NOATIME)
        except BaseException:
            self._limits.close()
            raise

    def follow(self, allocation: Allocation) -> None:
        """Take over the container's record; its shares are the same ones."""
        self.allocation, self.is_off = allocation, not allocation.resident

    def read(self, clock: Callable[[], int]) -> bool:
        """Read the usage page; return whether it has changed. Raises OSError.

        Reads instead of mapping: a process that may write the file could truncate it under a
        mapping.
        """
        before = self.seen
        self.seen, self.read_ns = os.pread(self._usage, self._size, _DEMAND_AT), clock()
        self.moved = self.seen != before
        return self.moved

    @property
    def is_new(self) -> bool:
        """Whether a grant is due and this arbiter has written none yet."""
        return not self._is_fixed and not self._until_ns

    def grant(self, now_ns: int) -> None:
        """Put the due rates into effect now, for LEASE_NS unless renewed. Raises OSError.

        Writes nothing beyond the reserved rates if no policy allows it.
        """
        if self._is_fixed or (self._until_ns and self.due == self.rates):
            return
        if self.is_new:
            # The page may have other rates, from an arbiter that was killed.
            self._write(now_ns + LEASE_NS)
        else:
            # Each rate is one aligned word, and the expiry stays: the shim sees the old or the new
            # rate.
            self._limits.check()
            for gpu, rate in enumerate(self.due):
                if rate != self.rates[gpu]:
                    self._put_rate(gpu, rate)

    def renew(self, now_ns: int) -> None:
        """Extend the present grants by LEASE_NS from now. Raises OSError."""
        if self._until_ns:
            # One aligned word, too.
            self._limits.check()
            self._put_end(now_ns + LEASE_NS)

    def restore(self) -> None:
        """Put the reserved rates into effect, without expiry. Raises OSError."""
        if self._until_ns:
            self.due = self._reserved()
            self._write(0)

    def close(self) -> None:
        self._limits.close()
        os.close(self._usage)

    def _write(self, until_ns: int) -> None:
        self._limits.begin()
        # A grant must never exist without its expiry, even if this process is killed here.
        if until_ns:
            self._put_end(until_ns)
        for gpu, rate in enumerate(self.due):
            self._put_rate(gpu, rate)
        if not until_ns:
            self._put_end(0)
        self._limits.end()

    def _put_end(self, until_ns: int) -> None:
        self._limits.put("limits.rate_until_ns", until_ns)
        self._until_ns = until_ns

    def _put_rate(self, gpu: int, rate: int) -> None:
        self._limits.put("limits_gpu.rate_ppm", rate, gpu)
        self.rates[gpu] = rate

    def _reserved(self) -> list[int]:
        return [share.core_percent * PPM_PER_PERCENT for share in self.allocation.shares]
