"""GPU instances that were made for one container each, as the GPU probe sees them."""

from __future__ import annotations

import contextlib

from vcuda_oci.fences import instances
from vcuda_oci.host.host import Host
from vcuda_oci.ledger import instance_records
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError


def uuids(state_dir: str, facts: Host) -> list[str]:
    """UUIDs of the MIG devices of `facts` on such instances; [] beside a broken record, which the
    agent reports."""
    with contextlib.suppress(VcudaError):
        return [share.uuid for share in instance_records.taken(state_dir, facts.gpus, [])]
    return []


def end_left_over(state_dir: str, library: str) -> None:
    """Destroy the instances of released shares; what fails is tried again with the next sample.

    library: path of NVML here.
    """
    with contextlib.suppress(VcudaError, OSError):
        instances.release(Ledger(state_dir), library)
