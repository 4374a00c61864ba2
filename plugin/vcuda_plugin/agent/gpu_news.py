"""Pass changes of the node's GPUs on to the offer, the pages and the event log."""

from __future__ import annotations

import asyncio
import logging
import os

from vcuda_oci.container.identity import pod_key
from vcuda_oci.ledger import events
from vcuda_oci.model import names
from vcuda_oci.system.settings_file import Config

from .gpus import inventory
from .gpus.inventory import Inventory
from .http import http_child
from .offer import Offer
from .pods import pod_watch_child

_log = logging.getLogger(__name__)


async def follow(
    settings: Config,
    offer: Offer,
    api: pod_watch_child.Cluster,
    http: http_child.HttpChild,
    gpus_known: asyncio.Event,
    alone: asyncio.Event,
) -> None:
    """Follow the GPUs without end. gpus_known: set with the first answer. alone: no other agent."""

    def changed(seen: Inventory) -> None:
        offer.changed(seen)
        gpus_known.set()

    def missing(why: str) -> None:
        gpus_known.set()
        why = _with_hint(why, settings.driver_root)
        http.send_missing(why)
        if why:
            _log.warning("no GPU is offered: %s", why)
            _record_missing(settings.state_dir, why)

    # Know the pods before offering devices: the kubelet then starts to admit pods that use them.
    if alone.is_set():  # else the running agent knows them
        await api.known()
    await inventory.follow(settings, changed, missing, http.send_sensors)


def _with_hint(why: str, driver_root: str) -> str:
    """Add a hint if the software GPU's state file is read-only, which is a mistake in a mount."""
    state = os.path.join(driver_root, "softgpu.state")
    if why and os.path.exists(state) and not os.access(state, os.W_OK):
        hint = "mount it read-write; in the chart, set agent.softwareGpu=true"
        return f"{why}; {state} cannot be written: {hint}"
    return why


def _record_missing(state_dir: str, why: str) -> None:
    """Record that there is no GPU; in a pod, as an event of the agent's own pod."""
    uid, namespace, name = (
        os.environ.get(f"POD_{key}", "") for key in ("UID", "NAMESPACE", "NAME")
    )
    key, more = "", {}
    if uid and namespace and name:
        key, more = pod_key(uid, "agent"), {"pod": f"{namespace}/{name}/agent"}
    text = f"no GPU is offered: {why}"
    events.record(state_dir, names.AGENT_PROGRAM, events.NO_GPUS, key, text, **more)
