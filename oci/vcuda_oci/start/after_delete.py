"""Release a container's share after its engine has called `delete`.

The launcher calls this when the low-level runtime has ended and the record is still there. The
`delete` may have failed, and the container's next instance may have taken over the record.
"""

from __future__ import annotations

import os

from ..guest import mount_points
from ..ledger import events, liveness
from ..ledger.ledger import Ledger
from ..model import names
from ..model.errors import VcudaError, with_id
from ..system import settings_file
from . import left_over


def main(argv: list[str]) -> None:
    """argv: config.toml, and the container's id. Never fails: the runtime's own end counts."""
    try:
        release(argv[0], argv[1])
    except (VcudaError, OSError) as error:
        line = with_id(f"{names.PROGRAM}: {error}", argv[1])
        os.write(2, (line + "\n").encode(errors="replace"))


def release(config_path: str, container_id: str) -> None:
    """Release the container's share unless it is in use. Raises VcudaError, OSError."""
    ledger = Ledger(settings_file.load(config_path).state_dir, names.PROGRAM)
    with ledger:
        allocation = ledger.get(container_id)
        if allocation is None:
            return
        if liveness.is_deleted(allocation) or not liveness.is_alive(allocation):
            mount_points.remove(f"{ledger.containers}/{allocation.id}")
            ledger.remove(allocation.id)
            ledger.record_event(events.RELEASED, allocation, "its container is deleted")
    left_over.destroy_released(ledger)
