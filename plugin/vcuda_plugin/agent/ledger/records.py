"""Cache of the ledger's records for code that polls them: reads them once per change."""

from __future__ import annotations

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.allocation import Allocation

from .ledger_changes import LedgerChanges


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
