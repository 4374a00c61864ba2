"""Make the GPU instances of a layout, after those of an earlier layout were destroyed.

Everything is planned for all GPUs before anything is made. Each instance has a record, as a
container's has, so that the next layout knows which are ours; like the instances themselves, the
records do not outlast a reboot.
"""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Collection, Mapping, Sequence
from typing import Any, NamedTuple

from vcuda_oci.fences import instances
from vcuda_oci.host.host import Host
from vcuda_oci.host.mig import Mig
from vcuda_oci.ledger import instance_records
from vcuda_oci.ledger.instance_records import STATIC, Held
from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.system import files

from ..names import container_names
from . import parted_file, plan
from .parted_file import Part
from .plan import Plan, Taken

_MOST_BYTES, _MOST_DEPTH = 1 << 18, 20
_PCI_DEVICES = "/sys/bus/pci/devices"


_Placed = tuple[str, Taken]  # UUID of the GPU, and where the instance stands


class Change(NamedTuple):
    """plan: None: the GPU is not in MIG mode, as the layout wants it."""

    gpu: Gpu
    plan: Plan | None


def read(path: str, name: str) -> list[Part]:
    """A layout of the file, which is YAML or JSON. Raises VcudaError."""
    try:
        text = files.read(os.path.realpath(path), _MOST_BYTES).decode()
        return parted_file.layout_of(_tree(text, path), name, path)
    except (OSError, UnicodeDecodeError) as error:
        raise VcudaError(f"cannot be read: {error}", path, "correct the path") from error


def apply(
    ledger: Ledger, facts: Host, parts: Sequence[Part], *, dry_run: bool = False
) -> list[Change]:
    """Plan and, unless it is a dry run, carry out a layout. Raises VcudaError: refused before
    anything is made, or the driver refuses; then what was made stays, and has records."""
    with instances.lock(ledger), Mig(facts.library) as driver:
        if not dry_run:
            instances.sweep(ledger)
        # A sweep leaves stale instances that are in use; a dry run counts all of them as destroyed.
        stale = _there(driver, instance_records.stale(ledger)) if dry_run else {}
        records = instance_records.read(ledger.state_dir, STATIC)
        ours = _there(driver, records)
        changes = _planned(driver, facts, parts, ours, stale)
        leaving = [ours[gpu.uuid, one] for gpu, plan in changes if plan for one in plan.destroy]
        _check_unused(ledger, driver, leaving)
        if not dry_run:
            os.makedirs(f"{ledger.state_dir}/{STATIC}", 0o700, exist_ok=True)
            for held in set(records) - set(ours.values()):
                instance_records.remove(ledger.state_dir, held.id, STATIC)
            for change in changes:
                if change.plan:
                    _carry_out(ledger, driver, facts, change.gpu.uuid, change.plan, ours)
        return changes


def _there(driver: Mig, records: Sequence[Held]) -> dict[_Placed, Held]:
    """The records with an instance, by GPU and place."""
    return {
        (held.gpu, (one.profile, one.start, one.width)): held
        for held in records
        for one in instances.of(driver.instances(held.gpu), held)
    }


def _planned(
    driver: Mig,
    facts: Host,
    parts: Sequence[Part],
    ours: Mapping[_Placed, Held],
    stale: Collection[_Placed],
) -> list[Change]:
    """stale: instances that go before the layout is made."""
    changes = []
    for gpu in facts.gpus:
        part = None
        if gpu.mig is None:
            part = parted_file.wanted(parts, gpu.index, _pci_id(facts.root, gpu.bus_id))
        if part:
            plan.check_mode(part, gpu.uuid, gpu.divided)
            mine = [taken for uuid, taken in ours if uuid == gpu.uuid]
            layout = driver.layout(gpu.uuid) if gpu.divided else None
            if layout:
                left = [one for one in layout.taken if (gpu.uuid, one) not in stale]
                layout = layout.replaced(taken=left)
            changes.append(Change(gpu, plan.plan(part, layout, mine) if layout else None))
    if not changes:
        raise VcudaError("covers no GPU of this machine", "layout", "see 'vcuda gpus'")
    return changes


def _carry_out(
    ledger: Ledger,
    driver: Mig,
    facts: Host,
    gpu: str,
    wanted: Plan,
    ours: Mapping[_Placed, Held],
) -> None:
    for taken in wanted.destroy:
        with ledger:  # no container gets a share of it meanwhile
            _check_unused(ledger, driver, [ours[gpu, taken]])
            is_destroyed = instances.destroy(ledger, driver, ours[gpu, taken], STATIC)
        if not is_destroyed:
            hint = "end the processes that use it: see 'nvidia-smi'"
            raise VcudaError("an instance of the former layout is in use", gpu, hint)
    for place in wanted.create:
        profile, id = place.profile, f"{gpu}@{place.start}"
        before = [one.uuid for one in driver.instances(gpu) if one.uuid]
        library = facts.library
        held = Held(id, gpu, profile.id, place.start, profile.width, before, library)
        held = instances.make(ledger, driver, held, profile, STATIC)
        instance_records.write(ledger.state_dir, held, STATIC)


def _check_unused(ledger: Ledger, driver: Mig, leaving: Sequence[Held]) -> None:
    """Raises VcudaError: an allocation has a share of such an instance's MIG device, even if its
    container has no process on the GPU now; or a record is broken, so that it is not known."""
    uuids = {
        one.uuid or held.uuid
        for held in leaving
        for one in instances.of(driver.instances(held.gpu), held)
    }
    allocations, broken = ledger.read()
    if broken and uuids:
        raise broken_record(*broken[0])
    names = container_names.lines(allocations)
    for record in allocations:
        for share in [*record.shares, *record.resident]:
            if share.uuid in uuids:
                what = f"an instance of the former layout is the share of {names[record.id]}"
                hint = "end its container: see 'vcuda ps', and 'vcuda release --all-dead'"
                raise VcudaError(what, share.uuid, hint)


def _pci_id(root: str, bus_id: str) -> str:
    """Device and vendor as mig-parted writes them, "0x233010DE"; "": unknown."""
    folder = f"{root.rstrip('/')}{_PCI_DEVICES}/{bus_id}"
    device, vendor = (files.text(f"{folder}/{name}", 64).strip() for name in ("device", "vendor"))
    return f"0x{device[2:]}{vendor[2:]}".lower() if device and vendor else ""


def _tree(text: str, path: str) -> Any:
    with contextlib.suppress(ValueError, RecursionError):
        return json.loads(text)
    try:
        import yaml  # late: of another package, and only for this verb
    except ImportError as error:
        what = "is no JSON, and this Python reads no YAML"
        raise VcudaError(what, path, "install python3-yaml, or python3-pyyaml") from error
    try:
        depth = 0
        for event in yaml.parse(text):
            if isinstance(event, yaml.AliasEvent):
                what = "has YAML aliases, which may stand for any amount"
                raise VcudaError(what, path, "write them out")
            depth += isinstance(event, yaml.CollectionStartEvent)
            depth -= isinstance(event, yaml.CollectionEndEvent)
            if depth > _MOST_DEPTH:
                raise VcudaError("is no YAML: nested too deep", path, "correct the file")
        return yaml.safe_load(text)
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise VcudaError(f"is no YAML: {error}"[:300], path, "correct the file") from error
