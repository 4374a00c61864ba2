"""The DRA driver's process: serves the kubelet and publishes this node's ResourceSlices.

The agent writes its inventory to stdin, one JSON object a line. The process prints a line each time
the kubelet has registered the driver.
"""

from __future__ import annotations

import json
import logging
import os
import signal
import sys
import threading
import time
from typing import Any

from vcuda_oci.model import names
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ...kube import kube_client
from ...kube.api import ApiError, KubeApi, Object
from ...kube.connect import connect
from ..gpus import inventory
from . import devices, partitions, sockets
from .claim_status import Reports, path_of
from .health_stream import HealthStream
from .plugin import DraPlugin
from .prepared import PreparedClaims
from .publisher import Publisher

# A pod is deleted after its claim is unprepared: what the kubelet forgot is found here.
FORGOTTEN_SECONDS = 60.0
_PCI_DEVICES = "/sys/bus/pci/devices"

prepare = kube_client.load  # called before the fork

_log = logging.getLogger(__name__)


def main(
    settings: Config,
    node: str,
    kubeconfig: str,
    kubelet: str,
    cdi_folder: str,
    node_root: str,
) -> None:
    """Run until SIGTERM. kubelet: its root folder, "/var/lib/kubelet". node_root: of `DraChild`."""
    signal.signal(signal.SIGTERM, _end)
    kube_client.load()  # now: two threads would do it at once
    api = connect(kubeconfig, names.AGENT_PROGRAM)
    publisher, reports = Publisher(node), Reports(node)
    health = HealthStream(node, settings.mps_devices)
    claims = PreparedClaims(settings.path, cdi_folder, node, node_root)
    try:
        paths = sockets.free_pair(kubelet)
    except VcudaError as error:
        sys.exit(f"{names.AGENT_PROGRAM}: {error}")
    plugin = DraPlugin(
        paths.claims,
        claims,
        lambda space, name: api.get(path_of(space, name)),
        lambda: print("registered", flush=True),
        reports.add,
    )
    tasks: tuple[Any, ...] = (
        lambda: publisher.follow(connect(kubeconfig, names.AGENT_PROGRAM)),
        lambda: publisher.write(connect(kubeconfig, names.AGENT_PROGRAM)),
        lambda: reports.write(connect(kubeconfig, names.AGENT_PROGRAM)),
        lambda: _forget_ended(api, claims, plugin.lock),
    )
    try:
        with (
            sockets.served(paths.claims, plugin.service(), health.service()),
            sockets.served(paths.registration, plugin.registration()),
        ):
            for task in tasks:
                threading.Thread(target=task, daemon=True).start()
            for line in sys.stdin:
                seen = inventory.of_tree(json.loads(line))
                health.publish(seen)
                roots = pcie_roots(seen.gpus)
                offered = devices.devices(seen, rules_of(settings), roots, settings.mps_devices)
                publisher.publish(*partitions.partitioned(offered, seen))
    except VcudaError as error:
        sys.exit(f"{names.AGENT_PROGRAM}: {error}")


def _end(number: int, frame: Any) -> None:
    """End once: the agent's end brings the signal a second time."""
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    sys.exit(0)


def pcie_roots(gpus: list[Gpu]) -> dict[str, str]:
    """The name of each GPU's PCIe root by UUID, such as "pci0000:00", from sysfs."""
    found = {}
    for gpu in gpus:
        parts = os.path.realpath(f"{_PCI_DEVICES}/{gpu.bus_id}").split("/")
        root = next((part for part in parts if part.startswith("pci") and ":" in part), "")
        if gpu.bus_id and root:
            found[gpu.uuid] = root
    return found


def _forget_ended(api: KubeApi, claims: PreparedClaims, lock: threading.Lock) -> None:
    """Unprepare the claims that the API no longer has, until the process ends.

    A kubelet never unprepares a claim that its own state has lost.
    """
    while True:
        time.sleep(FORGOTTEN_SECONDS)
        try:
            forget_ended(api, claims, lock)
        except (VcudaError, ApiError, OSError) as error:
            _log.warning("claims: %s", error)


def forget_ended(api: KubeApi, claims: PreparedClaims, lock: threading.Lock) -> list[str]:
    """Unprepare what the API no longer has; return the uids. Raises ApiError, VcudaError, OSError.

    A claim of the same name with another uid is another claim. One that the API refuses stays: the
    node authorizer knows no relation of the claim with this node yet, or no longer.
    """
    ended = []
    for uid, (namespace, name) in claims.known().items():
        try:
            if name and _uid_now(api, namespace, name) == uid:
                continue
        except ApiError as error:
            if error.status != 403:
                raise
            _log.warning("claim %s/%s (%s) stays: %s", namespace, name, uid, error)
            continue
        with lock:
            # Prepared again meanwhile: its record is new.
            if not name and claims.known().get(uid, ("", ""))[1]:
                continue
            claims.unprepare(uid)
        ended.append(uid)
        _log.warning("claim %s/%s (%s): removed; the API has no such claim", namespace, name, uid)
    return ended


def _uid_now(api: KubeApi, namespace: str, name: str) -> str:
    try:
        claim: Object = api.get(path_of(namespace, name))
    except ApiError as error:
        # An API server that does not serve this kind of object answers with 404, too.
        if error.status == 404 and f'"{name}" not found' in str(error):
            return ""
        raise
    return str(claim["metadata"]["uid"])
