"""Notice changes of the ledger's records from the modification time of their folder."""

from __future__ import annotations

import os
import time

# File systems count time in steps of up to 10 ms: two changes in one step have the same time.
_GRAIN_NS = 50_000_000


class LedgerChanges:
    """Change detector. folder: holds the records, each of which is written by rename."""

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
