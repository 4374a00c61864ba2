"""The GPUs of this node and their health, followed by asking a process that may hang."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vcuda_oci import events, unhealthy
from vcuda_oci.nvml import HANGS
from vcuda_oci.placement import Gpu

from ..process import child
from .health import Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcuda_oci.config import Config

# NVML that has said nothing for so long hangs.
LIMIT_SECONDS = 8
# To open it may wake each GPU from sleep, a second or two each.
START_SECONDS = 60
MODULE = "vcuda_plugin.agent.gpus.gpu_probe"
# Between two processes that ask; where NVML cannot be asked, up to the longest.
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 1, 16

_log = logging.getLogger(__name__)


@dataclass
class Inventory:
    """gpus: those that are not in MIG mode, and MIG devices. unhealthy: the reason, by UUID.

    numa: the node of each GPU that has one, by UUID.
    distances: between the GPUs in their order, see vcuda_oci.topology; None: not told.
    driver: its version; cuda: the newest CUDA that it serves, "13.0"; "": not told.
    """

    gpus: list[Gpu] = field(default_factory=list)
    numa: dict[str, int] = field(default_factory=dict)
    unhealthy: dict[str, str] = field(default_factory=dict)
    distances: list[list[int]] | None = None
    driver: str = ""
    cuda: str = ""


async def follow(
    settings: Config, changed: Callable[[Inventory], None], missing: Callable[[str], None]
) -> None:
    """Call `changed` with what is there, first once NVML has answered and then at each change.

    Call `missing` with the reason whenever no GPU is found for another reason, and with "" when one
    is found again.

    What is unhealthy is kept for the claims, and for the next agent.
    """
    watch = _Watch(settings, changed)
    known: dict[str, Any] | None = None
    cannot, pause, why = "", _PAUSE_SECONDS, ""
    while True:
        cache = settings.state_dir + "/host.json"
        probe = child.running(MODULE, settings.driver_root, cache)
        async with probe as (_, said):
            trouble, limit = "", START_SECONDS
            while not trouble:
                try:
                    line = await asyncio.wait_for(said.readline(), limit)
                    limit = LIMIT_SECONDS
                    # One that is killed may leave half a line.
                    look = json.loads(line) if line.endswith(b"\n") else {}
                    if "gpus" in look:
                        known, cannot, pause = look, "", _PAUSE_SECONDS
                    else:
                        trouble = "NVML does not answer"
                    if look.get("cannot", cannot) != cannot:  # told once, however often it is tried
                        cannot = look["cannot"]
                        if known:  # else `missing` reports it
                            _log.warning("%s", cannot)
                except asyncio.TimeoutError:
                    trouble = HANGS
                    _log.warning("NVML: no answer for %d s; asking anew", limit)
                before, why = why, _why_none(known, cannot or trouble)
                if why != before:
                    missing(why)
                if known:
                    watch.see(known, trouble)
        await asyncio.sleep(pause)
        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def _why_none(known: dict[str, Any] | None, trouble: str) -> str:
    """Why there is no GPU; "": there is one. known: what NVML said last."""
    if known is None:
        return trouble
    return "" if known["gpus"] else "NVML counts no GPU"


class _Watch:
    """What was seen of the GPUs, and what of it was told and kept."""

    def __init__(self, settings: Config, changed: Callable[[Inventory], None]) -> None:
        self._settings, self._changed = settings, changed
        self._kept = unhealthy.read(settings.state_dir)
        self._health = Health(settings.ignored_xids, settings.lasting_xids, self._kept)
        self._told: Inventory | None = None
        self._ailing: dict[str, str] = {}  # as it was told last
        self._silent: dict[str, str] = {}

    def see(self, look: dict[str, Any], trouble: str) -> None:
        """look: what the probe said last. trouble: why it says no more."""
        self._forget_what_was_removed()
        now = time.monotonic()
        gpus = [Gpu(**gpu) for gpu in look["gpus"]]
        uuids = [gpu.uuid for gpu in gpus]
        if trouble:
            # Of one that hangs nothing is known since it was asked.
            since = now - LIMIT_SECONDS if trouble == HANGS else now
            for when in (since, now):
                self._health.see(when, uuids, dict.fromkeys(uuids, trouble))
        else:
            self._health.see(now, uuids, look["failing"], look["xids"])
        self._keep(self._health.ailments(now))
        sick = self._health.unhealthy(now)
        versions = (look["driver"], look["cuda"])
        seen = _shared(Inventory(gpus, look["numa"], sick, look["distances"], *versions))
        # A GPU in MIG mode is offered to nobody, and tells of its own trouble all the same.
        ailing = {**sick, **seen.unhealthy}
        for uuid in uuids:
            before, after = self._ailing.get(uuid), ailing.get(uuid)
            if before != after:
                _log.warning("%s is %s", uuid, f"unhealthy: {after}" if after else "healthy again")
                events.record_health(self._settings.state_dir, uuid, after or "")
        self._ailing = ailing
        for index, why in look["silent"].items():
            if index not in self._silent:
                _log.warning("GPU %s is left out: %s", index, why)
        self._silent = look["silent"]
        if self._told is None or _facts(seen) != _facts(self._told):
            self._changed(seen)
        self._told = seen

    def _forget_what_was_removed(self) -> None:
        """Who removes the file says that its GPUs are fit."""
        path = unhealthy.path_in(self._settings.state_dir)
        if self._kept and not os.path.lexists(path):
            _log.warning("%s: removed; what it said of GPUs is forgotten", path)
            self._kept = {}
            self._health = Health(self._settings.ignored_xids, self._settings.lasting_xids)

    def _keep(self, ailments: dict[str, unhealthy.Ailment]) -> None:
        if ailments == self._kept:
            return
        try:
            unhealthy.write(self._settings.state_dir, ailments)
            self._kept = ailments
        except OSError as error:
            path = unhealthy.path_in(self._settings.state_dir)
            _log.warning("%s: cannot be written: %s", path, error.strerror)


def _shared(inventory: Inventory) -> Inventory:
    """Without GPUs in MIG mode; what ails one ails its MIG devices."""
    at = [at for at, gpu in enumerate(inventory.gpus) if not gpu.divided]
    if len(at) == len(inventory.gpus):
        return inventory
    gpus, far = [inventory.gpus[one] for one in at], inventory.distances
    sick = inventory.unhealthy
    reasons = {gpu.uuid: sick.get(gpu.uuid) or sick.get(gpu.parent, "") for gpu in gpus}
    return Inventory(
        gpus,
        {gpu.uuid: inventory.numa[gpu.uuid] for gpu in gpus if gpu.uuid in inventory.numa},
        {uuid: reason for uuid, reason in reasons.items() if reason},
        None if far is None else [[far[a][b] for b in at] for a in at],
        inventory.driver,
        inventory.cuda,
    )


def _facts(inventory: Inventory) -> tuple[Any, ...]:
    gpus = [gpu.__dict__ for gpu in inventory.gpus]
    versions = (inventory.driver, inventory.cuda)
    return gpus, inventory.numa, inventory.unhealthy, inventory.distances, versions
