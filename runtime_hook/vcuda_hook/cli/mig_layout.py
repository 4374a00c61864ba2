"""``vcuda mig-layout``: GPU instances by a layout of nvidia-mig-parted's own file."""

from __future__ import annotations

import argparse

from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import names
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..mig import apply


def mig_layout(arguments: argparse.Namespace, settings: Config) -> int:
    """Raises VcudaError: refused."""
    parts = apply.read(arguments.file, arguments.layout)
    ledger = Ledger(settings.state_dir, names.PROGRAM)
    facts = apply_share.host_of(settings)
    for gpu, plan in apply.apply(ledger, facts, parts, dry_run=arguments.dry_run):
        if plan is None:
            print(f"GPU {gpu.index}, {gpu.uuid}: not in MIG mode, as the layout wants it")
            continue
        made = ", ".join(f"{place.profile.name} at {place.start}" for place in plan.create)
        would = "would be " if arguments.dry_run else ""
        counts = f"{plan.kept} stay, {len(plan.destroy)} {would}destroyed"
        print(f"GPU {gpu.index}, {gpu.uuid}: {counts}, {would}created: {made or 'none'}")
    return 0
