"""``vcuda limit``: change the share of a running container."""

from __future__ import annotations

import argparse
from typing import NamedTuple

from vcuda_oci.host.host import Host
from vcuda_oci.ledger import liveness, resize
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model import policies
from vcuda_oci.model.allocation import Allocation, GpuShare
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.placement import eligible
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.start import apply_share
from vcuda_oci.system.settings_file import Config

from ..live import usage
from ..names import container_names
from ..text import table

WORDS = ("core", "memory", "policy", "core-limit", "weight", "priority", "latency")


class Resized(NamedTuple):
    """name: as lists show it, or the id. gpu: as lists show it, or the UUID. before, after: the
    share.
    """

    id: str
    name: str
    gpu: str
    before: GpuShare
    after: GpuShare


def limit(arguments: argparse.Namespace, settings: Config) -> int:
    """Change the named figures; with --dry-run only show the change. Raises VcudaError: refused."""
    options = {key: getattr(arguments, key.replace("-", "_")) for key in WORDS}
    words = {key: value for key, value in options.items() if value is not None}
    if not words:
        raise VcudaError("nothing to change", "vcuda limit", "use --core, --memory or --policy")
    done = resized(settings, arguments.id, words, arguments.gpu, arguments.force, arguments.dry_run)
    _print(arguments, done)
    return 0


def resized(
    settings: Config,
    name: str,
    words: dict[str, str],
    gpu: str | None = None,
    force: bool = False,
    dry_run: bool = False,
) -> Resized:
    """Change `words` of a container's share.

    Without `force` refuses a memory limit below what the container's processes use: they keep that
    memory, and another container could be promised the same. Raises VcudaError: refused.
    """
    facts = apply_share.host_of(settings)
    ledger = Ledger(settings.state_dir)
    page = None
    if "memory" in words:  # a container can make its page slow to read; do not wait under the lock
        page = usage.take_sample(ledger, container_names.find_record(ledger, name))
    with ledger:
        if not dry_run:
            resize.finish(ledger)
        allocation = container_names.find_record(ledger, name)
        shown = container_names.shown(ledger, allocation)
        at = _which(allocation, shown, gpu, facts)
        before = allocation.shares[at]
        if not liveness.is_alive(allocation):
            raise VcudaError("its container has ended", shown, "see 'vcuda ps'")
        if allocation.isolation:
            what = "its share is a GPU instance of its own, which cannot grow or shrink"
            if allocation.isolation == policies.MPS:
                what = "its processes are under MPS, which reads their limits at their start"
            raise VcudaError(what, shown, "stop it, and create it with another share")
        after, crowded = resize.wanted(ledger, facts, allocation, at, words, rules_of(settings))
        if after.memory_bytes < before.memory_bytes and not force:
            held = page.gpus[at].held_bytes if page else None
            if allocation.suspension:
                held = allocation.suspension.bytes.get(after.uuid, held)
            _refuse_to_go_below(held, after, shown)
        if after != before and not dry_run:
            if crowded:
                ledger.sweep(liveness.is_alive)
            shares = list(allocation.shares)
            shares[at] = after
            resize.change(ledger, allocation, shares)
    found = facts.gpu(before.uuid)
    on = f"GPU {found.name}" if found else before.uuid
    return Resized(allocation.id, shown, on, before, after)


def _which(allocation: Allocation, shown: str, name: str | None, facts: Host) -> int:
    """The share to change, by the GPU's index, UUID or the UUID's first characters. Raises
    VcudaError.
    """
    uuids = [share.uuid for share in allocation.shares]
    if name is None and len(uuids) == 1:
        return 0
    by_name = {gpu.name: gpu.uuid for gpu in facts.gpus}
    begun = eligible.begun_by(name or "", uuids)
    uuid = begun[0] if len(begun) == 1 else by_name.get(name or "", name)
    if uuid not in uuids:
        what = f"has no share of '{name}'" if name else f"has shares of {len(uuids)} GPUs"
        if len(begun) > 1:
            what = f"'{name}' begins the UUIDs of {len(begun)} of its GPUs"
        raise VcudaError(what, shown, f"use --gpu {' or '.join(uuids)}")
    return uuids.index(uuid)


def _refuse_to_go_below(held: int | None, after: GpuShare, shown: str) -> None:
    if held is not None and held > after.memory_bytes:
        what = f"its processes hold {table.size(held)}; {table.size(after.memory_bytes)} asked"
        hint = "free memory in it, or use --force: it then gets no more until it holds less"
        raise VcudaError(what, shown, hint)


def _print(arguments: argparse.Namespace, done: Resized) -> None:
    before, after = done.before, done.after
    if arguments.json:
        table.print_json(
            {
                "id": done.id,
                "changed": before != after and not arguments.dry_run,
                "before": before.fields(),
                "after": after.fields(),
            }
        )
        return
    had, has_now = (str(share).replace(share.uuid, done.gpu) for share in (before, after))
    line = f"{done.name} has {had} already"
    if before != after:
        has = "would have" if arguments.dry_run else "has"
        line = f"{done.name} {has} {has_now}; it had {had}"
    print(table.printable(line))
