"""Cache of the ledger's records for code that polls them: reads them once per change."""

from __future__ import annotations

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation

from .ledger_changes import LedgerChanges


class Records:
    """Cached records. ledger: for all other operations. changes: how often they were read again."""

    def __init__(self, state_dir: str) -> None:
        self.ledger = Ledger(state_dir)
        self.changes = 0
        self._since = LedgerChanges(self.ledger.allocations)
        self._read: tuple[list[Allocation], list[tuple[str, str]]] = [], []

    def read(self) -> tuple[list[Allocation], list[tuple[str, str]]]:
        """Return all valid records, and (path, reason) of each broken one, as Ledger.read."""
        if self._since.happened():
            self._read = self.ledger.read()
            self.changes += 1
            if self._read[1]:
                # A broken record may be repaired without a change of the folder: read again.
                self._since.forget()
        return self._read
