"""``vcuda advise``: what workloads need of their GPUs, and a live resize to that."""

from __future__ import annotations

import argparse
import time
from collections.abc import Mapping, Sequence
from typing import Any

from vcuda_oci.ledger import liveness
from vcuda_oci.ledger.ledger import Ledger
from vcuda_oci.model.allocation import Allocation
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.model.sizes import share_bytes
from vcuda_oci.system import files
from vcuda_oci.system.settings_file import Config

from ..advice import demands, maximum
from ..advice.demand import Demand
from ..advice.maximum import Maximum
from ..advice.workload import Workload
from ..live import workloads
from ..names import container_names
from ..show import advised
from ..show.advised import Advised
from ..text import table
from . import limit

_WHERE = "vcuda advise"
_MOST_CANDIDATES = 8


def advise(arguments: argparse.Namespace, settings: Config) -> int:
    """Returns 1 if a share could not be changed. Raises VcudaError: nothing is known of a workload
    of this name, or too little for --apply.
    """
    for option in ("apply", "dry_run", "max_core", "max_memory"):
        if getattr(arguments, option) and not (arguments.name and arguments.apply):
            word = "--" + option.replace("_", "-")
            needed = "a NAME" if arguments.apply else "--apply"
            raise VcudaError(f"{word} without {needed}", _WHERE, f"add {needed}")
    known = _read(settings)
    allocations = [each for each in Ledger(settings.state_dir).read()[0] if each.runtime]
    of = workloads.of(settings.state_dir, allocations)
    running: dict[Workload, list[Allocation]] = {}
    for each in allocations:
        running.setdefault(of[each.id], []).append(each)
    if arguments.name:
        chosen = [_named(arguments.name, known, allocations, of)]
        running = {each: list(filter(liveness.is_alive, running.get(each, ()))) for each in chosen}
    else:
        chosen = sorted(known, key=lambda each: (each not in running, each))
    resources = (settings.core_resource, settings.memory_resource)
    names = container_names.lines(allocations)
    found = [Advised(each, known[each], running.get(each, []), resources, names) for each in chosen]
    changes = _apply(arguments, settings, found[0]) if arguments.apply else []
    if arguments.json:
        trees = [each.as_json() for each in found]
        if arguments.apply:
            trees[0]["changes"] = changes
        table.print_json(trees[0] if arguments.name else trees)
    elif arguments.apply:
        for change in changes:
            print(table.printable(_line(change)))
    elif arguments.name:
        for line in found[0].lines(time.time()):
            print(table.printable(line))
    else:
        table.print_table(advised.HEADINGS, [each.row() for each in found], shrinks=0)
    return 1 if any(change["error"] for change in changes) else 0


def _read(settings: Config) -> dict[Workload, Demand]:
    """Raises VcudaError: there are no figures, or this user may not read them."""
    path = f"{settings.state_dir}/{demands.FILE}"
    try:
        return demands.parse(files.read(path, demands.MOST_BYTES))
    except FileNotFoundError as error:
        hint = "start vcuda-node-agent with the setting listen; it writes them every minute"
        raise VcudaError("no figures of workloads", path, hint) from error
    except OSError as error:
        raise VcudaError(error.strerror or "cannot be read", path, "run it as root") from error
    except ValueError as error:
        what, hint = f"not readable: {error}", "remove it; the node agent begins anew"
        raise VcudaError(what, path, hint) from error


def _named(
    word: str,
    known: Mapping[Workload, Demand],
    allocations: Sequence[Allocation],
    of: Mapping[str, Workload],
) -> Workload:
    """The workload that `word` names, by itself or by one of its containers. Raises VcudaError."""
    exact = {each for each in known if each.shown == word}
    found = exact or {each for each in known if word in container_names.forms_of_pod(each.shown)}
    if not found:
        containers = {of[each.id] for each in container_names.all_of(word, allocations)}
        found = containers & known.keys()
        if containers and not found:
            hint = "the node agent takes a sample every ten seconds and saves every minute"
            raise VcudaError("no samples of it yet", word, hint)
    if not found:
        raise VcudaError("no workload or container of this name", word, "see 'vcuda advise'")
    if len(found) > 1:
        texts = [f"{each.shown} ({each.kind} {each.image}".strip() + ")" for each in sorted(found)]
        candidates = ", ".join(texts[:_MOST_CANDIDATES])
        raise VcudaError(f"may be {candidates}", word, "write more of the name, or a container's")
    return found.pop()


def _apply(
    arguments: argparse.Namespace, settings: Config, wanted: Advised
) -> list[dict[str, Any]]:
    """Resize each container of the workload; return what was changed, or why not."""
    advice = wanted.advice
    if advice.core_percent is None and advice.memory_bytes is None:
        raise VcudaError("nothing is recommended", wanted.workload.shown, wanted.reason)
    if not wanted.running:
        hint = "paste what 'vcuda advise NAME' shows; it counts from the next start"
        raise VcudaError("no container of it runs here", wanted.workload.shown, hint)
    named, shown = _maximum(arguments), wanted.names
    changes = []
    for allocation in wanted.running:
        for at, share in enumerate(allocation.shares):
            most = maximum.of(allocation, at, named)
            words = most.words(advice)
            change: dict[str, Any] = {
                "id": allocation.id, "name": shown[allocation.id], "gpu": share.uuid,
                "before": share.fields(), "after": None,
                "maximum": most._asdict(), "dry_run": arguments.dry_run, "error": None,
            }  # fmt: skip
            try:
                done = limit.resized(
                    settings, allocation.id, words, share.uuid, dry_run=arguments.dry_run
                )
                change["before"], change["after"] = done.before.fields(), done.after.fields()
            except VcudaError as error:
                container_names.name_in(error, wanted.running)
                change["error"] = str(error)
            changes.append(change)
    return changes


def _maximum(arguments: argparse.Namespace) -> Maximum:
    """What --max-core and --max-memory name. Raises VcudaError."""
    core, memory = arguments.max_core, arguments.max_memory
    if core is not None and not (core.isascii() and core.isdigit() and 1 <= int(core) <= 100):
        hint = "write a whole number from 1 to 100, percent of one GPU"
        raise VcudaError(f"core cannot be '{core}'", "--max-core", hint)
    return Maximum(
        int(core) if core else None, share_bytes(memory, "--max-memory") if memory else None
    )


def _line(change: Mapping[str, Any]) -> str:
    if change["error"]:
        return f"{change['name']}: unchanged: {change['error']}"
    before, after = (
        f"{share['core_percent']} % and {table.size(share['memory_bytes'])}"
        for share in (change["before"], change["after"])
    )
    if before == after:
        return f"{change['name']} has {before} already"
    return (
        f"{change['name']} {'would have' if change['dry_run'] else 'has'} {after}; it had {before}"
    )
