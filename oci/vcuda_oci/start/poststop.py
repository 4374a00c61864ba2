"""Release a container's share when it has stopped."""

from __future__ import annotations

import os

from ..container import hook_state
from ..container.identity import claims_two_engines, owner_of
from ..guest import mount_points
from ..ledger import events
from ..ledger.ledger import Ledger
from ..model import names
from ..model.errors import VcudaError
from ..system.settings_file import Config
from . import left_over


def release(settings: Config, allocation_id: str, state: hook_state.State) -> None:
    """Release the allocation if the container in `state` is the one that holds it.

    allocation_id: "" where only the state identifies the container. A container of a pod comes back
    under another id and gets the same share again, so its pod keeps it until the sandbox ends;
    then the sweep releases it. Raises VcudaError.
    """
    ledger = Ledger(settings.state_dir, names.HOOK_PROGRAM)
    if not os.path.isdir(ledger.allocations):
        return  # nothing was ever claimed here: do not create a lock file
    id = allocation_id or owner_of(_annotations(state), state.id).key
    try:
        with ledger:
            _release(ledger, id, state)
        left_over.destroy_released(ledger)
    except VcudaError as error:
        error.allocation = id  # only the runtime's log shows it
        raise


def _annotations(state: hook_state.State) -> dict[str, str]:
    """Read config.json, because the state lacks what proves which of two engines made the
    container.

    Raises VcudaError: it cannot be read.
    """
    if not claims_two_engines(state.annotations):
        return state.annotations
    from ..container.container import annotations_of  # only if the annotations name two engines

    return annotations_of(hook_state.config_of(state))


def _release(ledger: Ledger, id: str, state: hook_state.State) -> None:
    allocation = ledger.get(id)
    if allocation is None or allocation.container_id != state.id:
        return
    mount_points.remove(f"{ledger.containers}/{allocation.id}")
    if allocation.pod.get("sandbox_id"):
        ledger.record_event(events.STOPPED, allocation, "its pod keeps the share")
    else:
        ledger.remove(allocation.id)
        ledger.record_event(events.RELEASED, allocation, "its container has stopped")
