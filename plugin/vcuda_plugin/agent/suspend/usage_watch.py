"""What containers' usage pages say of their work and of calls that wait. The pages are hostile."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterable
from typing import NamedTuple

from vcuda_oci.guest import page_file
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.pages import layout, page_reader

_ASKED_AT = {name: at for name, at, _ in layout.offsets()}["usage.resume_asked"]


class Seen(NamedTuple):
    """work: figures that change with each piece of work. inside: calls of live processes that may
    be in the driver.
    """

    work: tuple[int, ...]
    inside: int


class UsageWatch:
    """Keeps the pages of followed containers open."""

    def __init__(self, ledger: Ledger) -> None:
        self._ledger = ledger
        self._open: dict[str, tuple[tuple[str, int], int, int]] = {}

    def follow(self, allocations: Iterable[Allocation]) -> None:
        """Follow exactly these containers; a next instance of one has a new page."""
        wanted = {one.id: one for one in allocations}
        for id, (instance, _, page) in list(self._open.items()):
            if id not in wanted or _instance(wanted[id]) != instance:
                os.close(page)
                del self._open[id]
        for id, one in wanted.items():
            if id in self._open:
                continue
            try:
                page = page_file.open_page(f"{self._ledger.containers}/{id}/usage", os.O_RDONLY)
            except OSError:
                continue  # it is being removed, or leased: the next call tries again
            self._open[id] = _instance(one), len(one.shares), page

    def asked(self, id: str) -> int | None:
        """A number that grows while a call waits to be resumed; None: there is no page."""
        if id not in self._open:
            return None
        try:
            return int.from_bytes(os.pread(self._open[id][2], 4, _ASKED_AT), sys.byteorder)
        except OSError:
            return None

    def seen(self, id: str) -> Seen | None:
        """None: there is no whole page, or the container hides what it has in too many locks."""
        if id not in self._open:
            return None
        _, gpus, page = self._open[id]
        try:
            live = page_reader.live_slots(page)
            usage = page_reader.read_usage(os.pread(page, layout.USAGE_SIZE, 0), live, gpus)
        except (OSError, ValueError):
            return None
        work = [
            figure for gpu in usage.gpus for figure in (gpu.launches, gpu.busy_ns, gpu.held_bytes)
        ]
        return Seen(tuple(work), usage.calls_inside)


def _instance(allocation: Allocation) -> tuple[str, int]:
    return allocation.container_id, allocation.claimant[1]
