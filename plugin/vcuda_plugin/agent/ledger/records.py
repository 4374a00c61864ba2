"""Cache of the ledger's records for code that polls them: reads them once per change."""

from __future__ import annotations

import os
import time

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation

# File systems count time in steps of up to 10 ms: two changes in one step have the same time.
_GRAIN_NS = 50_000_000


class LedgerChanges:
    """Notices changes by the modification time of `folder`.

    It holds the records, each of which is written by rename.
    """

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen_ns = 0  # time of the last change that was seen; 0: report a change next time

    def happened(self) -> bool:
        """Whether a record may have been added, removed or changed since the last call."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed and changed == self._seen_ns:
            return False
        # A change right after this call may have the same time: do not rely on a recent one.
        self._seen_ns = changed if time.time_ns() - changed > _GRAIN_NS else 0
        return True

    def forget(self) -> None:
        """Make the next call of `happened` return True."""
        self._seen_ns = 0


class Records:
    """Cached records. ledger: for all other operations. changes: how often they were read again.
    broken: (path, reason) of each broken record.
    """

    def __init__(self, state_dir: str) -> None:
        self.ledger = Ledger(state_dir, names.AGENT_PROGRAM)
        self.changes = 0
        self.broken: list[tuple[str, str]] = []
        self._since = LedgerChanges(self.ledger.allocations)
        self._read: list[Allocation] = []

    def read(self) -> list[Allocation]:
        """Return all valid records. Raises VcudaError, as Ledger.read."""
        if self._since.happened():
            self._read, self.broken = self.ledger.read()
            self.changes += 1
            if self.broken:
                # A broken record may be repaired without a change of the folder: read again.
                self._since.forget()
        return self._read
