"""A node with an arbiter, real records and pages, and a clock that the test sets."""

from __future__ import annotations

import struct
from typing import Any

from support.ledger.samples import GIB, record
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import GpuShare
from vcuda_oci.model.suspension import Suspension
from vcuda_oci.pages import layout, limits, page_reader
from vcuda_plugin.agent.compute import grants

MS = 1_000_000
START = 10**12
USAGE_GPU = {
    name.partition(".")[2]: at for name, at, _ in layout.offsets() if name.startswith("usage_gpu.")
}


def elastic(core: int, ceiling: int = 100, gpu: str = "GPU-0") -> GpuShare:
    return GpuShare(gpu, GIB, core, "elastic", ceiling, core)


def fixed(core: int, gpu: str = "GPU-0") -> GpuShare:
    return GpuShare(gpu, GIB, core)


class ArbiterNode:
    """A ledger, its containers' pages, and an arbiter that polls when the test calls `poll`."""

    def __init__(self, folder: Any) -> None:
        self.ledger = Ledger(str(folder))
        self.now = START
        self.node = self.new_node()

    def new_node(self) -> grants.Node:
        return grants.Node(self.ledger.state_dir, lambda: self.now)

    def add_record(self, id: str, *shares: GpuShare) -> None:
        allocation = record(id, shares=list(shares))
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))

    def suspend(self, id: str, suspension: Suspension | None) -> None:
        """Write a step into the record, or None: its end."""
        with self.ledger:
            now = self.ledger.get(id)
            assert now
            self.ledger.record(now.replaced(suspension=suspension))

    def page(self, id: str, name: str) -> str:
        return f"{self.ledger.containers}/{id}/{name}"

    def waits(self, id: str, gpu: int = 0) -> None:
        """Add 1 ms to the time that the container's usage page says it waited for its share."""
        self._adds(id, "throttled_ns", MS, gpu)

    def uses(self, id: str, nanoseconds: int, gpu: int = 0) -> None:
        """Add to the GPU time that the container's usage page says it used."""
        self._adds(id, "busy_ns", nanoseconds, gpu)

    def _adds(self, id: str, field: str, nanoseconds: int, gpu: int) -> None:
        at = layout.USAGE_HEAD_SIZE + gpu * layout.USAGE_GPU_SIZE + USAGE_GPU[field]
        with open(self.page(id, "usage"), "r+b") as usage:
            usage.seek(at)
            (before,) = struct.unpack("=Q", usage.read(8))
            usage.seek(at)
            usage.write(struct.pack("=Q", before + nanoseconds))

    def poll(self, *waiting: str) -> None:
        """Poll once, 50 ms after the last poll; the containers in `waiting` have waited since."""
        self.now += 50 * MS
        for id in waiting:
            self.waits(id)
        self.node.sample()

    def limits(self, id: str) -> page_reader.Limits:
        with open(self.page(id, "limits"), "rb") as file:
            return page_reader.read_limits(file.read())

    def rates(self, id: str) -> list[int]:
        """The rate on each GPU that the shim would apply now, in percent."""
        page = self.limits(id)
        assert page.sequence % 2 == 0
        live = page.rate_until_ns == 0 or self.now <= page.rate_until_ns
        return [(gpu.rate_ppm // 10_000 if live else gpu.core_percent) for gpu in page.gpus]
