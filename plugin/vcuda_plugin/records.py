"""The ledger's records for who looks again and again: read once for each change."""

from __future__ import annotations

import os
import time
from typing import TYPE_CHECKING

from vcuda_oci.ledger import Ledger

if TYPE_CHECKING:
    from vcuda_oci.allocation import Allocation

# A file system's times move in steps of up to 10 ms: two changes in one step look like one.
_GRAIN_NS = 50_000_000


class Records:
    """ledger: for what else is asked of it. changes: how many readings found other records."""

    def __init__(self, state_dir: str) -> None:
        self.ledger = Ledger(state_dir)
        self.changes = 0
        self._read: tuple[list[Allocation], list[tuple[str, str]]] = [], []
        self._followed = 0  # the time of the folder's last change that was read; 0: read again

    def read(self) -> tuple[list[Allocation], list[tuple[str, str]]]:
        """As Ledger.read: every whole record, and (path, reason) of each that is not."""
        try:
            changed = os.stat(self.ledger.allocations).st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if not changed or changed != self._followed:
            self._read = self.ledger.read()
            self.changes += 1
            # What is wrong with a broken one may be mended without a change of the folder.
            settled = time.time_ns() - changed > _GRAIN_NS and not self._read[1]
            self._followed = changed if settled else 0
        return self._read
