"""Destroy the GPU instances of released shares; a start without such a one pays for one look."""

from __future__ import annotations

from . import instance_records
from .ledger import Ledger


def destroy_released(ledger: Ledger) -> None:
    """After a release, without the ledger's lock: destroy the GPU instances of released shares.

    Raises VcudaError: NVML cannot be asked. The next sweep tries again.
    """
    if instance_records.stale(ledger):
        from . import instances  # late: NVML, only where an instance is left over

        instances.release(ledger)
