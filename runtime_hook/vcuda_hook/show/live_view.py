"""Repeated samples of the host's GPUs and tenants, with the use between two samples."""

from __future__ import annotations

import os
import time
from typing import Any

from vcuda_oci.host import host
from vcuda_oci.ledger import unhealthy
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ..live import turn_figures, usage, views
from ..live.turn_figures import GpuTurns
from ..live.usage import Sample
from ..names import container_names


def gpus_by_uuid(settings: Config) -> dict[str, Gpu]:
    """GPUs by UUID; none without a driver, which hides no share."""
    try:
        facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    except VcudaError:
        return {}
    return {gpu.uuid: gpu for gpu in facts.gpus}


class LiveView:
    """Samples the ledger of `settings`."""

    def __init__(self, settings: Config) -> None:
        self._settings, self._ledger = settings, Ledger(settings.state_dir)
        self._before: dict[str, Sample | None] = {}
        self._turns_before: dict[str, GpuTurns] = {}

    def sample(self) -> dict[str, Any]:
        """Sample: "time" in seconds since 1970; "gpus" as in `vcuda gpus --json`; "tenants" as in
        `vcuda ps --json`, without status; "broken_records", file names. The first sample has no use
        of GPU time. Without a driver there are no GPUs.
        """
        allocations, broken = self._ledger.read()
        gpus = gpus_by_uuid(self._settings)
        samples = {
            allocation.id: usage.take_sample(self._ledger, allocation) for allocation in allocations
        }
        turns = turn_figures.read(self._settings.state_dir)
        names = container_names.of(allocations)
        tenants = [
            entry
            for allocation in allocations
            for entry in views.tenant_entries(
                allocation,
                usage.between(allocation, self._before.get(allocation.id), samples[allocation.id]),
                gpus,
                names[allocation.id],
            )
        ]
        rules = rules_of(self._settings)
        sick = unhealthy.reasons(self._settings.state_dir)
        entries = views.gpu_entries(list(gpus.values()), allocations, rules, sick)
        views.complete(tenants, entries, self._settings.state_dir, self._turns_before, turns)
        self._before, self._turns_before = samples, turns
        return {
            "time": time.time(),
            "gpus": entries,
            "tenants": tenants,
            "broken_records": [os.path.basename(path) for path, _ in broken],
        }
