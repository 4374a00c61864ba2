"""The DRA driver's process, as long as the node needs it."""

from __future__ import annotations

import argparse
import asyncio
import os

from vcuda_oci.system.settings_file import Config

from .dra import sockets, withheld
from .dra.dra_child import DraChild
from .ledger.records import Records
from .offer import Offer
from .pods import pod_watch_child

_PAUSE_SECONDS = 5
# Claims that were allocated before the node's ResourceSlices went are prepared by then.
_LAST_CLAIMS_SECONDS = 30


def _kubelet(arguments: argparse.Namespace) -> str:
    """The kubelet's root folder."""
    return os.path.dirname(os.path.normpath(str(arguments.kubelet_dir)))


def is_needed(settings: Config, arguments: argparse.Namespace) -> bool:
    """Whether the GPUs are offered by DRA, or were before."""
    if not pod_watch_child.is_there(settings, arguments.kubeconfig):
        return False
    records = Records(settings.state_dir).read()
    was = sockets.are_there(_kubelet(arguments)) or any(map(withheld.is_claim, records))
    return settings.by_dra or was


def make(
    settings: Config, arguments: argparse.Namespace, api: pod_watch_child.Cluster
) -> DraChild | None:
    """The DRA driver. Without the setting it runs only where claims are left to unprepare."""
    if not is_needed(settings, arguments):
        return None
    folders = (_kubelet(arguments), arguments.cdi_dir, arguments.node_driver_root)
    return DraChild(settings, api.node_name, arguments.kubeconfig, *folders)


async def run(driver: DraChild, offer: Offer, settings: Config) -> None:
    """Run the DRA driver; where the device plugin offers the GPUs, only until no claim is left.

    The kubelet cannot end a pod with a claim that is not unprepared.
    """
    if settings.by_dra:
        await driver.run()
    if offer.has_claims:
        running = asyncio.ensure_future(driver.run())
        try:
            await asyncio.sleep(_LAST_CLAIMS_SECONDS)
            while offer.has_claims:
                await asyncio.sleep(_PAUSE_SECONDS)
        finally:
            running.cancel()
            await asyncio.wait({running})
    driver.remove_sockets()
    await asyncio.Event().wait()
