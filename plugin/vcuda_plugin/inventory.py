"""The GPUs of this node and their health, followed by asking a process that may hang."""

from __future__ import annotations

import asyncio
import json
import logging
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from vcuda_oci.placement import Gpu

from . import child
from .health import Health

if TYPE_CHECKING:
    from collections.abc import Callable

    from vcuda_oci.config import Config

# NVML that has said nothing for so long hangs.
LIMIT_SECONDS = 8
# To open it may wake each GPU from sleep, a second or two each.
START_SECONDS = 60
_PAUSE_SECONDS = 1
_HANGS = "NVML hangs"

_log = logging.getLogger(__name__)


@dataclass
class Inventory:
    """unhealthy: the reason, by UUID. numa: the node of each GPU that has one, by UUID."""

    gpus: list[Gpu] = field(default_factory=list)
    numa: dict[str, int] = field(default_factory=dict)
    unhealthy: dict[str, str] = field(default_factory=dict)


async def follow(settings: Config, changed: Callable[[Inventory], None]) -> None:
    """Call `changed` with what is there, first once NVML has answered and then at each change."""
    health = Health(settings.ignored_xids, settings.lasting_xids)
    known: dict[str, Any] | None = None
    told: Inventory | None = None
    while True:
        cache = settings.state_dir + "/host.json"
        probe = child.running("vcuda_plugin.gpu_probe", settings.driver_root, cache)
        async with probe as (_, said):
            trouble, limit = "", START_SECONDS
            while not trouble:
                try:
                    line = await asyncio.wait_for(said.readline(), limit)
                    limit = LIMIT_SECONDS
                    # One that is killed may leave half a line.
                    if line.endswith(b"\n"):
                        known = json.loads(line)
                    else:
                        trouble = "NVML does not answer"
                except asyncio.TimeoutError:
                    trouble = _HANGS
                    _log.warning("NVML: no answer for %d s; asking anew", limit)
                if known:
                    told = _tell(health, known, trouble, told, changed)
        await asyncio.sleep(_PAUSE_SECONDS)


def _tell(
    health: Health,
    look: dict[str, Any],
    trouble: str,
    told: Inventory | None,
    changed: Callable[[Inventory], None],
) -> Inventory:
    now = time.monotonic()
    gpus = [Gpu(**gpu) for gpu in look["gpus"]]
    uuids = [gpu.uuid for gpu in gpus]
    if trouble:
        # Of one that hangs nothing is known since it was asked.
        since = now - LIMIT_SECONDS if trouble == _HANGS else now
        for when in (since, now):
            health.see(when, uuids, dict.fromkeys(uuids, trouble))
    else:
        health.see(now, uuids, look["failing"], look["xids"])
    seen = Inventory(gpus, look["numa"], health.unhealthy(now))
    for uuid in uuids:
        before, after = told.unhealthy.get(uuid) if told else None, seen.unhealthy.get(uuid)
        if before != after:
            _log.warning("%s is %s", uuid, f"unhealthy: {after}" if after else "healthy again")
    if told is None or _facts(seen) != _facts(told):
        changed(seen)
    return seen


def _facts(inventory: Inventory) -> tuple[Any, ...]:
    gpus = [gpu.__dict__ for gpu in inventory.gpus]
    return gpus, inventory.numa, sorted(inventory.unhealthy)
