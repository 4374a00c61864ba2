"""``vcuda inspect`` and ``gpus``: one share in full, and what is free."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence
from typing import Any

from vcuda_oci.host import host, nvml
from vcuda_oci.ledger import liveness, unhealthy
from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.gpu import Gpu
from vcuda_oci.placement.rules import rules_of
from vcuda_oci.system.settings_file import Config

from ..live import in_time, turn_figures, usage, views
from ..live.status import GONE, Status, statuses
from ..names import container_names
from ..text import table
from . import context_memory
from .live_view import gpus_by_uuid

_ANSWER_SECONDS = 2 * nvml.FIRST_ANSWER_SECONDS


def unknown_figures(states: Sequence[Status], entries: Sequence[Any]) -> VcudaError | None:
    """The figures that this user could not read, and why; None: all are known."""
    reasons = [status.reason for status in states if status.reason]
    if reasons:
        what = f"the state of {len(reasons)} of {len(states)} containers is unknown: {reasons[0]}"
    elif os.geteuid() != 0 and any(entry["usage"] == views.UNREADABLE for entry in entries):
        what = "what containers use is unknown: only root may read their usage pages"
    else:
        return None
    hint = "run it as root" if os.geteuid() != 0 else "run 'vcuda doctor'"
    return VcudaError(what, "ps", hint)


def inspect(arguments: argparse.Namespace, settings: Config) -> int:
    """Show the whole record of one allocation, its use, and its pages."""
    ledger = Ledger(settings.state_dir)
    allocation = container_names.find_record(ledger, arguments.id)
    shown = container_names.description_of(allocation)
    name = shown.name or views.short_id(allocation.id)
    record = {"name": name, "image": shown.image or None, **allocation.as_json()}
    (status,) = statuses([allocation])
    record["status"] = status.word
    (used,) = usage.measure(ledger, [allocation], usage.SAMPLE_SECONDS)
    entries = views.tenant_entries(allocation, used, gpus_by_uuid(settings))
    turns = turn_figures.read(settings.state_dir)
    views.complete(entries, [], settings.state_dir, {}, turns)
    record["use"] = [_use_of(entry) for entry in entries]
    record["limits"] = usage.limits(ledger, allocation)
    record["usage"] = usage.whole_page(ledger, allocation)
    if arguments.json:
        table.print_json(record)
    else:
        for line in _lines(record):
            print(table.printable(line))
    unknown = unknown_figures([status], entries)
    if unknown:
        sys.stderr.write(f"vcuda: {unknown}\n")
    return 1 if unknown else 0


def gpus(arguments: argparse.Namespace, settings: Config) -> int:
    """List the GPUs, what is free on each and, if asked, the memory of a context."""
    facts = host.load(settings.driver_root, settings.state_dir + "/host.json")
    allocations, broken = Ledger(settings.state_dir).read()
    measured = context_memory.measure(facts) if arguments.measure_context else {}
    library = facts.libraries.get("libnvidia-ml.so.1", "")
    lost = _silent(library, facts.gpus) if library else {}
    sick = {**lost, **unhealthy.reasons(settings.state_dir)}  # the agent may know the cause
    entries = views.gpu_entries(facts.gpus, _held(allocations), rules_of(settings), sick)
    turns = turn_figures.read(settings.state_dir)
    views.complete([], entries, settings.state_dir, {}, turns)
    if arguments.measure_context:
        for entry in entries:
            entry["context_memory_bytes"] = measured.get(entry["uuid"])
    if arguments.json:
        table.print_json(entries)
    else:
        headings: tuple[str, ...] = _GPUS_WIDE if arguments.wide else _GPUS
        headings += ("CONTEXT",) if arguments.measure_context else ()
        headings += ("UNHEALTHY",) if sick else ()
        rows = [_gpu_row(entry, arguments.wide, bool(sick)) for entry in entries]
        table.print_table(headings, rows, None if arguments.wide else headings.index("MODEL"))
    for path, reason in broken:
        sys.stderr.write(f"vcuda: {broken_record(path, reason)}\n")
    return 1 if broken else 0


def _silent(library: str, gpus: Sequence[Gpu]) -> dict[str, str]:
    """NVML's error for each GPU that does not answer now, by UUID: the cached facts of the host may
    name a lost one. library: NVML's file.
    """
    (answer,) = in_time.ask([lambda: _inventory(library)], _ANSWER_SECONDS)
    if isinstance(answer, in_time.Unanswered):
        return {gpu.uuid: f"unknown: {answer.reason}" for gpu in gpus}
    reasons: dict[str, str] = answer["silent"]
    every = reasons.get("", "NVML does not list it")
    return {
        gpu.uuid: reasons.get(str(gpu.index), every)
        for gpu in gpus
        if gpu.uuid not in answer["uuids"]
    }


def _inventory(library: str) -> dict[str, Any]:
    """The UUIDs of the GPUs that answer; errors by index, or by "" for all of them."""
    try:
        answer = nvml.inventory(library)
    except VcudaError as error:
        return {"uuids": [], "silent": {"": error.what}}
    silent = {str(index): error.what for index, error in answer.silent.items()}
    return {"uuids": [gpu.uuid for gpu in answer.gpus], "silent": silent}


def _held(allocations: Sequence[Allocation]) -> list[Allocation]:
    """The shares that a claim would count: it releases those of ended containers."""
    known = zip(allocations, statuses(allocations))
    ended = [allocation for allocation, status in known if status.word in (GONE, "stopped")]
    dead = {allocation.id for allocation in ended if not liveness.is_alive(allocation)}
    return [allocation for allocation in allocations if allocation.id not in dead]


def _use_of(entry: dict[str, Any]) -> dict[str, Any]:
    """Use of one GPU, in percent: GPU time, waiting, memory of the limit; and its turns."""
    keys = ("gpu_uuid", "core_used_percent", "waited_percent", "memory_used_percent")
    return {key: entry[key] for key in (*keys, *turn_figures.TOTALS, "usage")}


_GPUS = ("INDEX", "UUID", "MODEL", "MEMORY", "FREE CORE", "FREE MEMORY", "TENANTS")
_GPUS_WIDE = (
    "INDEX", "UUID", "MODEL", "MEMORY", "PROMISED", "FREE CORE", "FREE MEMORY", "TENANTS",
)  # fmt: skip


def _gpu_row(entry: dict[str, Any], wide: bool, with_health: bool) -> tuple[str, ...]:
    uuid, model = str(entry["uuid"]), str(entry["model"])
    return (
        str(entry["name"]),
        uuid if wide else table.short(uuid),
        model if wide else model.removeprefix("NVIDIA "),
        table.size(entry["memory_bytes"]),
        *((table.size(entry["promised_memory_bytes"]),) if wide else ()),
        *(("MIG", "MIG") if entry["mig_mode"] else _free(entry)),
        str(entry["tenants"]),
        *((table.size(entry["context_memory_bytes"]),) if "context_memory_bytes" in entry else ()),
        *((str(entry["unhealthy"] or "-"),) if with_health else ()),
    )


def _free(entry: dict[str, Any]) -> tuple[str, str]:
    return f"{entry['free_core_percent']} %", table.size(entry["free_memory_bytes"])


def _lines(value: Any, indent: str = "") -> list[str]:
    """A JSON tree as `key: value` lines."""
    lines: list[str] = []
    items = value.items() if isinstance(value, dict) else enumerate(value)
    for key, item in items:
        if isinstance(item, (dict, list)) and item:
            lines += [f"{indent}{key}:", *_lines(item, indent + "  ")]
        elif str(key).endswith("_bytes") and isinstance(item, int):
            lines.append(f"{indent}{key}: {item} ({table.size(item)})")
        elif str(key).endswith("_percent"):
            lines.append(f"{indent}{key}: {'-' if item is None else f'{item:.3g} %'}")
        elif str(key).endswith("_ppm"):
            lines.append(f"{indent}{key}: {item} ({item / 10_000:.3g} %)")
        elif isinstance(item, bool):
            lines.append(f"{indent}{key}: {'yes' if item else 'no'}")
        else:
            lines.append(f"{indent}{key}: {'-' if item is None else item}")
    return lines
