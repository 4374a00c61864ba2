"""A state folder with records and usage pages that a test writes."""

from __future__ import annotations

import contextlib
import fcntl
import os
import struct
import threading
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, BinaryIO

from support.ledger.samples import record
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.pages import layout, limits
from vcuda_oci.system import files

_GPU = layout.USAGE_HEAD_SIZE
_SLOTS = layout.USAGE_HEAD_SIZE + layout.MAX_GPUS * layout.USAGE_GPU_SIZE


@contextlib.contextmanager
def always_busy(usage: Sequence[str], period: float, step_ns: int) -> Iterator[None]:
    """While the block runs, add `step_ns` every `period` seconds to each page's figures: the
    time that its container used the first GPU and waited for it. The pages stay open meanwhile, as
    in a process of a container: the turn keeper takes each close for the end of one."""
    at = {name: at for name, at, _ in layout.offsets()}
    over = threading.Event()

    def go_on(pages: Sequence[BinaryIO]) -> None:
        done = 0
        while not over.wait(period):
            done += step_ns
            for page in pages:
                for figure in ("busy_ns", "throttled_ns"):
                    page.seek(_GPU + at[f"usage_gpu.{figure}"])
                    page.write(struct.pack("=Q", done))

    with contextlib.ExitStack() as stack:
        pages = [stack.enter_context(open(path, "r+b", 0)) for path in usage]
        worker = threading.Thread(target=go_on, args=[pages])
        worker.start()
        try:
            yield
        finally:
            over.set()
            worker.join()


class Tenants:
    def __init__(self, folder: str) -> None:
        self.state_dir = folder + "/state"
        self.ledger = Ledger(self.state_dir)
        self._locked: dict[int, int] = {}  # descriptor by inode

    def add_record(self, id: str, **changes: Any) -> Allocation:
        allocation = record(id, **changes)
        with self.ledger:
            self.ledger.write(allocation, limits.page_of(allocation))
        return allocation

    def page(self, id: str) -> str:
        return f"{self.ledger.containers}/{id}/usage"

    def uses(
        self,
        id: str,
        gpu: int = 0,
        held: int = 0,
        contexts: int = 1,
        pid: int = 7,
        busy: int = 0,
        **figures: int,
    ) -> None:
        """Write the slot of the container's first process, with `held` bytes on GPU number `gpu`
        and `busy` nanoseconds of its time.

        figures: fields of usage_gpu.
        """
        inode = os.stat(self.page(id)).st_ino
        fd = self._locked.get(inode, -1)
        if fd < 0:
            fd = self._locked[inode] = os.open(self.page(id), os.O_RDWR)
        os.pwrite(fd, struct.pack("=I", 1), 12)
        os.pwrite(fd, struct.pack("=IIQ", pid, 1, 1), _SLOTS)
        at = {name: at for name, at, _ in layout.offsets()}
        os.pwrite(fd, struct.pack("=Q", held), _SLOTS + at["usage_slot.held_bytes"] + 8 * gpu)
        os.pwrite(fd, struct.pack("=Q", busy), _SLOTS + at["usage_slot.busy_ns"] + 8 * gpu)
        os.pwrite(fd, bytes([contexts]), _SLOTS + at["usage_slot.contexts"] + gpu)
        for name, value in figures.items():
            place = _GPU + gpu * layout.USAGE_GPU_SIZE + at[f"usage_gpu.{name}"]
            os.pwrite(fd, struct.pack("=q" if value < 0 else "=Q", value), place)
        lock = struct.pack("hhqqi0q", fcntl.F_WRLCK, 0, layout.USAGE_LOCK_BASE, 1, 0)
        fcntl.fcntl(fd, fcntl.F_OFD_SETLK, lock)

    def turns(
        self, at_ns: int, of: Mapping[str, Sequence[int]], lost_ns: int = 0, gpu: str = "GPU-0"
    ) -> None:
        """Write the turn keeper's figures of one GPU: of each allocation the time held, waited for
        its turn, waited for its share, and lost."""
        folder = self.state_dir + "/turns"
        os.makedirs(folder, exist_ok=True)
        lines = [f"{at_ns} {lost_ns}", *(" ".join(map(str, (*of[id], 0, 0, id))) for id in of)]
        files.replace(f"{folder}/{gpu}", "".join(line + "\n" for line in lines).encode(), 0o600)

    def close(self) -> None:
        for fd in self._locked.values():
            os.close(fd)
