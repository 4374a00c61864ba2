"""Whether the ledger's records are others than before, told by its folder alone."""

from __future__ import annotations

import os
import time

# A file system's times move in steps of up to 10 ms: two changes in one step look like one.
_GRAIN_NS = 50_000_000


class LedgerChanges:
    """folder: of the records, each of which is written by rename."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._seen_ns = 0  # the time of the last change that was seen; 0: look again

    def happened(self) -> bool:
        """Whether a record may have come, gone or changed since this was last asked."""
        try:
            changed = os.stat(self._folder).st_mtime_ns
        except FileNotFoundError:
            changed = 0
        if changed and changed == self._seen_ns:
            return False
        # What changes right after this may leave the same time.
        self._seen_ns = changed if time.time_ns() - changed > _GRAIN_NS else 0
        return True

    def forget(self) -> None:
        """Whoever asks next is told that something happened."""
        self._seen_ns = 0
