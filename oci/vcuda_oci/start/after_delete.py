"""The rest of what a container held is given back when its `delete` has ended.

The launcher does it where all is plain (oci/launcher/release.c). Here come a `delete` that
failed, as one does for a container that is gone already; a record that another instance of the
container may have taken over meanwhile; one of another runtime, or of an id that is not plain.
"""

from __future__ import annotations

import os

from ..guest import mount_points
from ..ledger import events, liveness
from ..ledger.ledger import Ledger
from ..model import names
from ..model.errors import VcudaError, with_id
from ..system import settings_file


def main(argv: list[str]) -> None:
    """argv: config.toml, and the container's id. Never fails: the runtime's own end counts."""
    try:
        release(argv[0], argv[1])
    except (VcudaError, OSError) as error:
        line = with_id(f"{names.PROGRAM}: {error}", argv[1])
        os.write(2, (line + "\n").encode(errors="replace"))


def release(config_path: str, container_id: str) -> None:
    """Release what is kept under the id if its container is gone; raises VcudaError, OSError."""
    ledger = Ledger(settings_file.load(config_path).state_dir, names.PROGRAM)
    with ledger:
        allocation = ledger.get(container_id)
        if allocation and not liveness.is_alive(allocation):
            mount_points.remove(f"{ledger.containers}/{allocation.id}")
            ledger.remove(allocation.id)
            ledger.record_event(events.RELEASED, allocation, "its container is deleted")
