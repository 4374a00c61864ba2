"""``vcuda release``: release containers' shares."""

from __future__ import annotations

import argparse
import os

from vcuda_oci.ledger import events, liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.names import CLAIM_PREFIX
from vcuda_oci.start import left_over
from vcuda_oci.system.settings_file import Config

from ..live import slices
from ..names import container_names
from ..text import table


def release(arguments: argparse.Namespace, settings: Config) -> int:
    """Release the named shares, or those of ended containers.

    Checks all ids before it releases any. Raises VcudaError: no such id, or its container runs and
    --force is not given.
    """
    if not arguments.id and not arguments.all_dead:
        raise VcudaError("nothing to release", "vcuda release", "name an id, or use --all-dead")
    ledger = Ledger(settings.state_dir)
    with ledger:
        names = container_names.lines(ledger.read()[0])
        ids = dict(_resolve(ledger, prefix, arguments.force) for prefix in arguments.id)
        for id, known in ids.items():
            ledger.remove(id)
            text = "released by hand" + (", by force" if arguments.force else "")
            if known:
                ledger.record_event(events.RELEASED, known, text)
            else:
                by = ledger.program
                events.record(ledger.state_dir, by, events.RELEASED, id, text + "; it was broken")
        released = list(ids)
        if arguments.all_dead:
            released += ledger.sweep(liveness.is_alive)
    left_over.destroy_released(ledger)
    if arguments.json:
        table.print_json(released)
    elif released:
        for id in released:
            print(table.printable(f"released {names.get(id, id)}"))
    else:
        print("nothing to release: every container lives")
    return 0


def _resolve(ledger: Ledger, prefix: str, force: bool) -> tuple[str, Allocation | None]:
    """The id to release, and its record; None: the record is broken."""
    _, broken = ledger.read()
    broken_ids = [os.path.basename(path)[: -len(".json")] for path, _ in broken]
    # A broken record has no readable names: only its whole id is accepted.
    if prefix in broken_ids:
        return prefix, None
    allocation = container_names.find_record(ledger, prefix)
    if allocation.id.startswith(CLAIM_PREFIX) and not force:
        hint = "delete its pod, or use --force if the kubelet has forgotten it"
        raise VcudaError("is a claim that the kubelet has prepared", allocation.id, hint)
    if allocation.is_named_slice and not force:
        hint = f"run 'vcuda cdi remove {slices.name_of(allocation)}'"
        raise VcudaError("is a device of the CDI spec", allocation.id, hint)
    if allocation.suspension and liveness.container_lives(allocation):
        # Without the record, no program would know that its processes are locked.
        hint = f"run 'vcuda resume {allocation.id}', or stop its container"
        raise VcudaError("is suspended", allocation.id, hint)
    if not force and liveness.is_alive(allocation):
        hint = "stop it first, or use --force: another may then get the same share"
        raise VcudaError("its container lives", allocation.id, hint)
    return allocation.id, allocation
