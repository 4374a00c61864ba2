"""The ledger's records for who looks again and again: read once for each change."""

from __future__ import annotations

from typing import TYPE_CHECKING

from vcuda_oci.ledger import Ledger

from .ledger_changes import LedgerChanges

if TYPE_CHECKING:
    from vcuda_oci.allocation import Allocation


class Records:
    """ledger: for what else is asked of it. changes: how many readings found other records."""

    def __init__(self, state_dir: str) -> None:
        self.ledger = Ledger(state_dir)
        self.changes = 0
        self._since = LedgerChanges(self.ledger.allocations)
        self._read: tuple[list[Allocation], list[tuple[str, str]]] = [], []

    def read(self) -> tuple[list[Allocation], list[tuple[str, str]]]:
        """As Ledger.read: every whole record, and (path, reason) of each that is not."""
        if self._since.happened():
            self._read = self.ledger.read()
            self.changes += 1
            if self._read[1]:
                # What is wrong with a broken one may be mended without a change of the folder.
                self._since.forget()
        return self._read
