"""The CDI spec of this host's GPUs and named slices, and its file."""

from __future__ import annotations

import json
import os
from collections.abc import Collection

from vcuda_oci.edits import cdi_spec, edits
from vcuda_oci.host import device_nodes
from vcuda_oci.host.host import Host
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.start import apply_share, cdi_edits
from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from ..hooks.main import CDI
from ..live import slices


def write(
    ledger: Ledger,
    facts: Host,
    settings: Config,
    path: str,
    kind: str,
    without: Collection[str] = (),
) -> tuple[bool, list[str]]:
    """Write the spec if it has changed. Return whether it had, and the devices' names.

    Needs the ledger's lock. Raises VcudaError: it cannot be written.
    """
    if os.path.exists(path) and not os.path.isfile(path):
        raise VcudaError("is not a regular file", path, "name another --output")
    text, devices = spec_text(ledger, facts, settings, kind, without)
    if not facts.root:
        device_nodes.link_numbers(list(facts.nodes.values()))
    for gpus in _devices(ledger, facts):
        cdi_edits.write_procfs(settings, gpus)
    try:
        if os.path.exists(path) and files.read(path, follow=True) == text.encode():
            return False, devices
        os.makedirs(os.path.dirname(os.path.abspath(path)), 0o755, exist_ok=True)
        files.replace(path, text.encode(), 0o644, sync=True)
    except OSError as error:
        what = f"cannot be written: {error.strerror}"
        raise VcudaError(what, path, "run it as root, or name another --output") from error
    return True, devices


def _devices(ledger: Ledger, facts: Host) -> list[list[Gpu]]:
    """The GPUs of each device, by the device's name."""
    uuids = [{share.uuid for share in held.shares} for held in slices.all_of(ledger)]
    of_slices = [[gpu for gpu in facts.gpus if gpu.uuid in held] for held in uuids]
    usable = [gpu for gpu in facts.gpus if not gpu.divided]
    return [*(facts.parts(gpu) for gpu in facts.gpus), usable, *of_slices]


def spec_text(
    ledger: Ledger, facts: Host, settings: Config, kind: str, without: Collection[str] = ()
) -> tuple[str, list[str]]:
    """The spec as JSON, and its devices' names. A slice of a missing GPU is omitted."""
    apply_share.check_shim()
    held = {
        slices.name_of(allocation): (allocation, f"{ledger.containers}/{allocation.id}")
        for allocation in slices.all_of(ledger)
        if slices.name_of(allocation) not in without
        and all(facts.gpu(share.uuid) for share in allocation.shares)
    }
    # Name the shim's own file: the link may lead to another version later.
    shim = os.path.realpath(apply_share.SHIM)
    command = [apply_share.HOOK, "--config", settings.path, CDI]
    paths = edits.Paths(shim, "", command, settings.extra_mounts)
    tree = cdi_spec.spec(facts, paths, settings.driver_capabilities, held, kind)
    return json.dumps(tree, indent=2) + "\n", [device["name"] for device in tree["devices"]]
