"""Record shares that are too small: refused memory at the limit, or waits for GPU time."""

from __future__ import annotations

import asyncio
import os
import time
from collections.abc import Iterator

from vcuda_hook.text import table
from vcuda_oci.guest import page_file
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.pages import page_reader

from ..ledger.records import Records
from .shortage import Finding, Reading, Share

PERIOD_SECONDS = 5.0


async def run(state_dir: str) -> None:
    watch = ShortageWatch(state_dir)
    while True:
        # Searching the descriptors of all processes can take long.
        await asyncio.to_thread(watch.check)
        await asyncio.sleep(PERIOD_SECONDS)


class ShortageWatch:
    """The counts in the first sample are from before it; containers that start later begin at 0."""

    def __init__(self, state_dir: str) -> None:
        self._records = Records(state_dir)
        self._shares: dict[str, tuple[int, list[Share]]] = {}  # inode of its page, by allocation
        self._is_first = True

    def check(self) -> None:
        allocations = self._records.read()
        for allocation in allocations:
            try:
                file, readings = self._read(allocation)
            except (OSError, ValueError):
                continue  # the page has no figures
            for share, finding in self._found(allocation, file, readings):
                self._record(allocation, share, finding)
        ids = {allocation.id for allocation in allocations}
        self._shares = {id: known for id, known in self._shares.items() if id in ids}
        self._is_first = False

    def _read(self, allocation: Allocation) -> tuple[int, list[Reading]]:
        """The page's inode, and its figures for each GPU. Raises OSError, ValueError."""
        path = f"{self._records.ledger.containers}/{allocation.id}/usage"
        fd = page_file.open_page(path, os.O_RDONLY)
        try:
            figures = page_reader.shortages(fd, len(allocation.shares))
            at = time.monotonic_ns() / 1e9
            readings = [Reading(at, refusals, waited_ns / 1e9) for waited_ns, refusals in figures]
            return os.fstat(fd).st_ino, readings
        finally:
            os.close(fd)

    def _found(
        self, allocation: Allocation, file: int, readings: list[Reading]
    ) -> Iterator[tuple[GpuShare, Finding]]:
        known, shares = self._shares.get(allocation.id, (0, []))
        if len(shares) != len(readings):
            before = [reading.refusals if self._is_first else 0 for reading in readings]
            shares = [Share(*begun) for begun in zip(readings, before)]
        elif known != file:
            for share, reading in zip(shares, readings):
                share.begin(reading)
        self._shares[allocation.id] = file, shares
        for held, share, reading in zip(allocation.shares, shares, readings):
            for finding in share.see(reading):
                yield held, finding

    def _record(self, allocation: Allocation, share: GpuShare, finding: Finding) -> None:
        if finding.kind == events.OUT_OF_MEMORY:
            size = table.size(share.memory_bytes)
            what = "allocation" if finding.times == 1 else "allocations"
            text = f"{finding.times} {what} refused at its limit, {size} of {share.uuid}"
        else:
            text = (
                f"its launches waited {finding.percent} % of the last minute for their "
                f"{share.core_percent} % of {share.uuid}"
            )
        events.record(
            self._records.ledger.state_dir,
            names.AGENT_PROGRAM,
            finding.kind,
            allocation.id,
            text,
            **events.about(allocation.container_id, allocation.pod),
            gpu=share.uuid,
            times=finding.times,
        )
