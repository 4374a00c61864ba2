"""The two pages of one container, open: its use is read, its grants are written in place."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from vcuda_oci.guest import page_file
from vcuda_oci.model.policies import FIXED
from vcuda_oci.pages import layout
from vcuda_oci.pages.limits_in_place import OpenPage

from .arbiter import PPM_PER_PERCENT
from .demand import TOLD_FROM, TOLD_SIZE, Demand

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcuda_oci.model.allocation import Allocation

# A grant that is not renewed for so long is void: the shim goes back to what is reserved.
LEASE_NS = 1_000_000_000
# So often all grants are renewed.
RENEWAL_NS = LEASE_NS // 2

_TOLD_AT = layout.USAGE_HEAD_SIZE + TOLD_FROM


class ContainerPages:
    """Grants and restores need the turn (limits_in_place), and the page as it was left.

    rates: of each share, as the page has them; due: as it shall have them, see grant. seen: of the
    usage page what demand.reading asks for; moved: it was other than at the look before.
    """

    __slots__ = (
        *("_is_fixed", "_limits", "_size", "_until_ns", "_usage"),
        *("allocation", "demands", "due", "moved", "rates", "read_ns", "seen"),
    )

    def __init__(self, folder: str, allocation: Allocation) -> None:
        """Raises OSError, or ValueError: the pages are not those of the allocation."""
        self.allocation = allocation
        self.demands = [Demand() for _ in allocation.shares]
        self.rates = self._reserved()
        self.due = self._reserved()
        self.seen, self.read_ns, self.moved = b"", 0, False
        self._is_fixed = all(share.policy == FIXED for share in allocation.shares)
        self._size = (len(allocation.shares) - 1) * layout.USAGE_GPU_SIZE + TOLD_SIZE
        self._until_ns = 0
        self._limits = OpenPage(folder + "/limits", allocation.shares)
        try:
            # That it was read is not written, which costs more than the reading.
            self._usage = page_file.open_page(folder + "/usage", os.O_RDONLY | os.O_NOATIME)
        except BaseException:
            self._limits.close()
            raise

    def read(self, clock: Callable[[], int]) -> bool:
        """Whether the container's page has changed. Raises OSError.

        Read, not mapped: a process that may write the file could truncate it under a mapping.
        """
        before = self.seen
        self.seen, self.read_ns = os.pread(self._usage, self._size, _TOLD_AT), clock()
        self.moved = self.seen != before
        return self.moved

    @property
    def is_new(self) -> bool:
        """Whether it is to be granted something, and this arbiter has written nothing yet."""
        return not self._is_fixed and not self._until_ns

    def grant(self, now_ns: int) -> None:
        """Let what is due count from now, for LEASE_NS unless renewed. Raises OSError.

        Nothing is granted beside what is reserved where no policy allows it.
        """
        if self._is_fixed or (self._until_ns and self.due == self.rates):
            return
        if self.is_new:
            # Other rates may stand there: those of an arbiter that was killed.
            self._write(now_ns + LEASE_NS)
        else:
            # One aligned word each, beside an end that stands: the shim sees the old rate or the
            # new one.
            self._limits.check()
            for gpu, rate in enumerate(self.due):
                if rate != self.rates[gpu]:
                    self._put_rate(gpu, rate)

    def renew(self, now_ns: int) -> None:
        """Let what was granted count for LEASE_NS from now. Raises OSError."""
        if self._until_ns:
            # One aligned word, too.
            self._limits.check()
            self._put_end(now_ns + LEASE_NS)

    def restore(self) -> None:
        """What is reserved counts again, for ever. Raises OSError."""
        if self._until_ns:
            self.due = self._reserved()
            self._write(0)

    def close(self) -> None:
        self._limits.close()
        os.close(self._usage)

    def _write(self, until_ns: int) -> None:
        self._limits.begin()
        # A grant must never stand without its end, whenever we are killed.
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
