"""Report to systemd and to the cluster that the agent is at work."""

from __future__ import annotations

import asyncio
import logging
import time

from vcuda_oci.system import systemd

from .compute.grants import Arbiter
from .pods import pod_watch_child

_OPEN_SECONDS = 10
# An arbiter without a new sample for this time is stuck.
_STUCK_SECONDS = 5

_log = logging.getLogger(__name__)


async def beat(api: pod_watch_child.Cluster, arbiter: Arbiter) -> None:
    """Renew the node's Lease while the arbiter runs."""
    await api.beat(lambda: _is_alive(arbiter))
    await asyncio.Event().wait()


def _is_alive(arbiter: Arbiter) -> bool:
    return time.monotonic() - arbiter.sampled_at < _STUCK_SECONDS


async def notify_systemd(
    opened: asyncio.Event, gpus_known: asyncio.Event, arbiter: Arbiter
) -> None:
    """Notify systemd: ready, then alive as long as this event loop and the arbiter run.

    Ready means that the claim socket is open and the GPUs are known: the kubelet starts after that.
    """
    for event, what in (
        (opened, "the claim socket cannot be opened"),
        (gpus_known, "NVML has not answered yet"),
    ):
        try:
            await asyncio.wait_for(event.wait(), _OPEN_SECONDS)
        except asyncio.TimeoutError:
            _log.warning("%s; going on without", what)
    systemd.notify("READY=1")
    period = systemd.watchdog_seconds() / 3
    while True:
        await asyncio.sleep(period or 3600)
        if _is_alive(arbiter):
            systemd.notify("WATCHDOG=1")
