"""Destroy the GPU instances of released shares, and end MPS daemons without containers.

Where nothing is left over this takes a listing of one folder and one stat."""

from __future__ import annotations

import os

from ..ledger import instance_records
from ..ledger.ledger import Ledger
from ..model import names


def destroy_released(ledger: Ledger) -> None:
    """After a release, without the ledger's lock: destroy the GPU instances of released shares,
    end MPS daemons that have no container.

    Raises VcudaError: NVML cannot be asked. The next sweep tries again.
    """
    if instance_records.stale(ledger):
        from ..fences import instances  # late: NVML, only where an instance is left over

        instances.release(ledger)
    if os.path.isdir(f"{ledger.state_dir}/{names.MPS_FOLDER}"):
        from ..fences import mps_spaces  # late: only where a container was under MPS

        mps_spaces.sweep(ledger)
