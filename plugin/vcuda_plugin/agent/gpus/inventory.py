"""Follows the node's GPUs and their health through the GPU probe, a process that may hang."""

from __future__ import annotations

import asyncio
import dataclasses
import json
import logging
import os
import time
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vcuda_oci.host.nvml import HANGS
from vcuda_oci.ledger import events, instance_records, unhealthy
from vcuda_oci.model import policies, topology
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.model.mig import Profile
from vcuda_oci.system.settings_file import Config

from ..process import child
from .health import Health

# Without a line from the probe for this time, NVML hangs.
LIMIT_SECONDS = 8
# Opening NVML may wake each GPU from sleep, which takes a second or two per GPU.
START_SECONDS = 60
_LATE_SECONDS = 1.0
MODULE = "vcuda_plugin.agent.gpus.gpu_probe"
# Pause before the next probe; it doubles up to the longest while NVML cannot be used.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1, 16

Sensors = Mapping[str, Mapping[str, float]]  # by UUID and key (sensors.py)

_log = logging.getLogger(__name__)


@dataclass
class Inventory:
    """The node's GPUs at one moment.

    gpus: MIG devices, GPUs that are not in MIG mode, and those in MIG mode that are vcuda's to
    divide: they have no MIG device but those that were made for one container each, which are in
    `own`. unhealthy: reason by UUID. profiles: of GPUs in MIG mode, by UUID (model.mig.Profile).
    places: of all their instances (model.mig.Layout).
    numa: NUMA node by UUID, of GPUs that have one.
    distances: between the GPUs, in the order of `gpus` (vcuda_oci.model.topology); None: unknown.
    divided: memory in bytes by UUID, of GPUs in MIG mode.
    driver: its version. cuda: the newest CUDA version it supports, such as "13.0". "": unknown.
    """

    gpus: list[Gpu] = field(default_factory=list)
    numa: dict[str, int] = field(default_factory=dict)
    unhealthy: dict[str, str] = field(default_factory=dict)
    distances: list[list[int]] | None = None
    driver: str = ""
    cuda: str = ""
    divided: dict[str, int] = field(default_factory=dict)
    profiles: dict[str, Sequence[Profile]] = field(default_factory=dict)
    own: list[Gpu] = field(default_factory=list)
    places: dict[str, Sequence[Sequence[int]]] = field(default_factory=dict)

    def tree(self) -> dict[str, Any]:
        """All of it, as JSON has it."""
        profiles = self.profiles.items()
        return {
            **self.__dict__,
            "gpus": [gpu.__dict__ for gpu in self.gpus],
            "own": [gpu.__dict__ for gpu in self.own],
            "profiles": {uuid: [each.fields() for each in listed] for uuid, listed in profiles},
        }


def of_tree(tree: dict[str, Any]) -> Inventory:
    """Read what Inventory.tree returned."""
    gpus, own = ([Gpu(**gpu) for gpu in tree[key]] for key in ("gpus", "own"))
    return Inventory(**{**tree, "gpus": gpus, "own": own, "profiles": _profiles(tree["profiles"])})


def _profiles(trees: dict[str, list[dict[str, Any]]]) -> dict[str, Sequence[Profile]]:
    return {uuid: [Profile(**each) for each in listed] for uuid, listed in trees.items()}


async def follow(
    settings: Config,
    changed: Callable[[Inventory], None],
    missing: Callable[[str], None],
    sensed: Callable[[Sensors], None],
) -> None:
    """Run the probe forever and report what it finds.

    Calls `changed` with the inventory after NVML's first answer and at each change. Calls `missing`
    with the reason when no GPU is found and whenever that reason changes, and with "" when a GPU is
    found again. Calls `sensed` with each sample's sensors, which no claim uses.
    Saves the unhealthy GPUs to a file for claims and for the next agent.
    """
    watch = _Watch(settings, changed)
    known: dict[str, Any] | None = None
    cannot, pause, why = "", _PAUSE_SECONDS, ""
    sampled = time.monotonic()
    while True:
        async with child.running(MODULE) as (_, lines):
            trouble, limit = "", START_SECONDS
            while not trouble:
                began = time.monotonic()
                try:
                    line = await asyncio.wait_for(lines.readline(), limit)
                    limit = LIMIT_SECONDS
                    # A killed probe may leave a partial line.
                    sample = json.loads(line) if line.endswith(b"\n") else {}
                    if "gpus" in sample:
                        known, cannot, pause = sample, "", _PAUSE_SECONDS
                        sampled = time.monotonic()
                    elif "changed" in sample and time.monotonic() - sampled < START_SECONDS:
                        pause = _PAUSE_SECONDS
                        break  # NVML did answer: the next probe sees what there is now
                    else:
                        trouble = "NVML does not answer"
                    if sample.get("cannot", cannot) != cannot:  # report each reason once
                        cannot = sample["cannot"]
                        if known:  # else `missing` reports it
                            _log.warning("%s", cannot)
                except asyncio.TimeoutError:
                    if time.monotonic() - began > limit + _LATE_SECONDS:
                        continue  # this process was stopped: the probe's lines may be waiting
                    trouble = HANGS
                    _log.warning("NVML: no answer for %d s; asking anew", limit)
                before, why = why, _missing_reason(known, cannot or trouble)
                if why != before:
                    missing(why)
                if known:
                    watch.see(known, trouble)
                    sensed({} if trouble else known["sensors"])
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _missing_reason(known: dict[str, Any] | None, trouble: str) -> str:
    """Why there is no GPU; "" if there is one. known: the last sample, if any."""
    if known is None:
        return trouble
    return "" if known["gpus"] else "NVML counts no GPU"


class _Watch:
    """Derives the inventory from samples; reports changes and saves the unhealthy GPUs."""

    def __init__(self, settings: Config, changed: Callable[[Inventory], None]) -> None:
        self._settings, self._changed = settings, changed
        self._saved = unhealthy.read(settings.state_dir)
        self._health = Health(settings, self._saved)
        self._reported: Inventory | None = None
        self._ailing: dict[str, str] = {}  # reasons as last logged, by UUID
        self._silent: dict[str, str] = {}

    def see(self, sample: dict[str, Any], trouble: str) -> None:
        """Process a sample. sample: the probe's last one. trouble: why no newer one came, or ""."""
        self._reset_if_removed()
        now = time.monotonic()
        gpus = [Gpu(**gpu) for gpu in sample["gpus"]]
        uuids = [gpu.uuid for gpu in gpus]
        if trouble:
            # If NVML hangs, the GPUs have been failing since the probe's last line.
            since = now - LIMIT_SECONDS if trouble == HANGS else now
            for when in (since, now):
                self._health.see(when, uuids, dict.fromkeys(uuids, trouble))
        else:
            self._health.see(now, uuids, sample["failing"], sample["xids"])
        self._save(self._health.faults(now))
        sick = self._health.unhealthy(now)
        versions = (sample["driver"], sample["cuda"])
        # A drained GPU is withdrawn like an unhealthy one; `vcuda drain` records its own event.
        closed = unhealthy.with_drained(sick, self._settings.state_dir)
        seen = Inventory(gpus, sample["numa"], closed, sample["distances"], *versions)
        own = self._instances(gpus)
        if own is not None:  # the record may be gone with its instance since the sample
            own.update(sample["own"])
        if own is not None and self._settings.isolation in (policies.AUTO, policies.MIG):
            seen.profiles, seen.places = _profiles(sample["profiles"]), sample["places"]
        seen = _shared(seen, {gpu.uuid for gpu in gpus if gpu.mig} if own is None else own)
        # A GPU that is left out for its MIG devices still has its own health reported.
        parts = {one.uuid: sick[one.parent] for one in seen.gpus if one.parent in sick}
        ailing = {**parts, **sick}
        for uuid in uuids:
            before, after = self._ailing.get(uuid), ailing.get(uuid)
            if before != after:
                _log.warning("%s is %s", uuid, f"unhealthy: {after}" if after else "healthy again")
                events.record_health(self._settings.state_dir, uuid, after or "")
        self._ailing = ailing
        for index, why in sample["silent"].items():
            if index not in self._silent:
                _log.warning("GPU %s is left out: %s", index, why)
        self._silent = sample["silent"]
        if self._reported is None or seen.tree() != self._reported.tree():
            self._changed(seen)
        self._reported = seen

    def _instances(self, gpus: list[Gpu]) -> set[str] | None:
        """UUIDs of MIG devices that were created for one container, which no other may get; None:
        a record is broken, so that they are not known."""
        try:
            own = instance_records.taken(self._settings.state_dir, gpus, [])
        except VcudaError as error:
            _log.warning("no MIG device and no GPU in MIG mode is offered: %s", error)
            return None
        return {share.uuid for share in own}

    def _reset_if_removed(self) -> None:
        """Reset all health if an administrator removed the file to declare the GPUs fit."""
        path = unhealthy.path_in(self._settings.state_dir)
        if self._saved and not os.path.lexists(path):
            _log.warning("%s: removed; the faults in it are forgotten", path)
            self._saved = {}
            self._health = Health(self._settings)

    def _save(self, faults: dict[str, unhealthy.GpuFault]) -> None:
        if faults == self._saved:
            return
        try:
            unhealthy.write(self._settings.state_dir, faults)
            self._saved = faults
        except OSError as error:
            path = unhealthy.path_in(self._settings.state_dir)
            _log.warning("%s: cannot be written: %s", path, error.strerror)


def _shared(inventory: Inventory, own: Collection[str]) -> Inventory:
    """The inventory without `own`, the MIG devices of one container each, and without GPUs in MIG
    mode that have others or no profiles; a GPU's fault makes its MIG devices unhealthy."""
    divisible = inventory.profiles.keys() - {
        gpu.parent for gpu in inventory.gpus if gpu.mig and gpu.uuid not in own
    }
    gpus = [
        gpu
        for gpu in inventory.gpus
        if gpu.uuid not in own and (not gpu.divided or gpu.uuid in divisible)
    ]
    if len(gpus) == len(inventory.gpus):
        return inventory
    sick = inventory.unhealthy
    reasons = {gpu.uuid: sick.get(gpu.uuid) or sick.get(gpu.parent, "") for gpu in gpus}
    return dataclasses.replace(
        inventory,
        gpus=gpus,
        numa={gpu.uuid: inventory.numa[gpu.uuid] for gpu in gpus if gpu.uuid in inventory.numa},
        unhealthy={uuid: reason for uuid, reason in reasons.items() if reason},
        distances=topology.between(gpus, inventory.gpus, inventory.distances),
        divided={gpu.uuid: gpu.memory_bytes for gpu in inventory.gpus if gpu.divided},
        own=[gpu for gpu in inventory.gpus if gpu.uuid in own],
    )
