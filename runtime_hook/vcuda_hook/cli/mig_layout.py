"""``vcuda mig-layout``: GPU instances by a layout of nvidia-mig-parted's own file."""

from __future__ import annotations

import argparse
import os
from typing import Any

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..mig import apply
from ..mig.apply import Change
from ..text import table


def mig_layout(arguments: argparse.Namespace, settings: Config) -> int:
    """Raises VcudaError: refused, or not root."""
    if os.geteuid() != 0:
        raise VcudaError("needs root", "vcuda mig-layout", "run it as root")
    parts = apply.read(arguments.file, arguments.layout)
    ledger = Ledger(settings.state_dir, names.PROGRAM)
    facts = apply_share.host_of(settings)
    changes = apply.apply(ledger, facts, parts, dry_run=arguments.dry_run)
    if arguments.json:
        table.print_json([_as_json(change, arguments.dry_run) for change in changes])
        return 0
    for gpu, plan in changes:
        if plan is None:
            print(f"GPU {gpu.index}, {gpu.uuid}: not in MIG mode, as the layout wants it")
            continue
        made = ", ".join(f"{place.profile.name} at {place.start}" for place in plan.create)
        would = "would be " if arguments.dry_run else ""
        counts = f"{plan.kept} stay, {len(plan.destroy)} {would}destroyed"
        print(f"GPU {gpu.index}, {gpu.uuid}: {counts}, {would}created: {made or 'none'}")
    return 0


def _as_json(change: Change, dry_run: bool) -> dict[str, Any]:
    """The numbers of instances, and the new ones; of a GPU without MIG mode none."""
    gpu, plan = change
    created = [(place.profile.name, place.start) for place in plan.create] if plan else []
    return {
        "index": gpu.index,
        "uuid": gpu.uuid,
        "mig_mode": plan is not None,
        "dry_run": dry_run,
        "kept": plan.kept if plan else 0,
        "destroyed": len(plan.destroy) if plan else 0,
        "created": [{"profile": name, "start": start} for name, start in created],
    }
