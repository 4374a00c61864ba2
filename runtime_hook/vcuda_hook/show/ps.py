"""``vcuda ps``: the shares and their use, as a table, by a template, or again and again."""

from __future__ import annotations

import argparse
import sys
import time
from collections.abc import Sequence
from typing import Any

from vcuda_oci.ledger.ledger import Ledger, broken_record
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ..live import process_use, turn_figures, usage, views
from ..live.status import statuses
from ..names import container_names
from ..text import table
from . import ps_fields
from .live_view import gpus_by_uuid
from .ps_fields import Field, Template
from .show import unknown_figures
from .terminal import Ended, Terminal, end_by, is_usable

WATCH_SECONDS = 2.0
# A name shorter than this says little: other columns go first.
_LEAST_NAME = 24
_TOGETHER = (["--json", "--processes"], ["--wide", "--watch"], ["--watch", "--processes"])
_PROCESSES = ("CONTAINER", "PID", "INSIDE", "MEMORY", "GPU TIME", "COMMAND")


class Listing:
    """entries: as ps_fields takes them. errors: for stderr; the exit code is then 1."""

    def __init__(self, settings: Config, arguments: argparse.Namespace) -> None:
        ledger = Ledger(settings.state_dir)
        allocations, broken = ledger.read()
        gpus, names = gpus_by_uuid(settings), container_names.of(allocations)
        states, turns = statuses(allocations), turn_figures.read(settings.state_dir)
        seconds = 0 if arguments.quiet and not arguments.sort else usage.SAMPLE_SECONDS
        found = [
            {**entry, "status": status.word}
            for allocation, status, used in zip(
                allocations, states, usage.measure(ledger, allocations, seconds)
            )
            for entry in views.tenant_entries(allocation, used, gpus, names[allocation.id])
        ]
        later = turn_figures.read(settings.state_dir)
        views.complete(found, [], settings.state_dir, turns, later)
        chosen = ps_fields.selected(found, arguments.filter)
        self.entries = ps_fields.ordered(chosen, arguments.sort)
        unknown = unknown_figures(states, found)
        self.errors = [str(broken_record(*each)) for each in broken]
        self.errors += [str(unknown)] if unknown else []
        self.ids = list(dict.fromkeys(entry["id"] for entry in self.entries))
        self._ledger, self._by_id = ledger, {each.id: each for each in allocations}

    def processes(self) -> list[dict[str, Any]]:
        names = {entry["id"]: entry["name"] for entry in self.entries}
        return [
            {"id": id, "name": names[id], **process.as_json()}
            for id in self.ids
            for process in process_use.of(self._ledger, self._by_id[id])
        ]


def ps(arguments: argparse.Namespace, settings: Config) -> int:
    """List the shares. Returns 1 if a record is broken or a figure unknown; stderr names it.

    Raises VcudaError: an unknown filter or field, or two options that exclude each other.
    """
    template = Template(arguments.format) if arguments.format else None
    forms = ("json", "quiet", "format", "wide", "watch", "processes")
    given = ["--" + name for name in forms if getattr(arguments, name)]
    if len(given) > 1 and given not in _TOGETHER:
        raise VcudaError(f"{given[0]} beside {given[1]}", "vcuda ps", "choose one of them")
    if arguments.watch:
        return _watch(arguments, settings)
    listing = Listing(settings, arguments)
    if arguments.json:
        table.print_json(listing.processes() if arguments.processes else listing.entries)
    elif arguments.quiet:
        for id in listing.ids:
            print(table.printable(id))
    elif template:
        _print_by(template, listing)
    else:
        for number, line in enumerate(_table(listing, arguments, table.terminal_width())):
            print(line if number else table.coloured(line, "bold"))
    for error in listing.errors:
        sys.stderr.write(f"vcuda: {error}\n")
    return 1 if listing.errors else 0


def ps_of(settings: Config) -> int:
    """The table of `vcuda ps` without options."""
    options = {"json": False, "quiet": False, "format": "", "wide": False, "watch": False}
    return ps(argparse.Namespace(**options, processes=False, sort="", filter=[]), settings)


def _print_by(template: Template, listing: Listing) -> None:
    lines = [template.line(entry) for entry in listing.entries]
    if template.is_table:
        rows = [line.split("\t") for line in (template.heading(), *lines)]
        lines = table.lines(rows[0], rows[1:])
    for line in lines:
        print(line)


def _table(listing: Listing, arguments: argparse.Namespace, width: int) -> list[str]:
    """width: 0: any."""
    if arguments.processes:
        processes = [_process_row(each) for each in listing.processes()]
        return table.lines(_PROCESSES, processes, _PROCESSES.index("COMMAND"), width)
    if arguments.wide:
        fields: Sequence[Field] = ps_fields.WIDE
        width = 0
    else:
        fields = _fitting(listing.entries, width)
    rows = [[field.text(entry) for field in fields] for entry in listing.entries]
    return table.lines([field.heading for field in fields], rows, 0, width)


def _fitting(entries: Sequence[Any], width: int) -> list[Field]:
    """The columns that fit, with a readable part of the name."""
    fields = list(ps_fields.COLUMNS)
    wide = {
        field: max(len(field.heading), *(len(field.text(entry)) for entry in entries), 0)
        for field in fields
    }
    wide[fields[0]] = min(wide[fields[0]], _LEAST_NAME)
    for field in ps_fields.LEAST_NEEDED:
        if width and sum(wide[each] + 2 for each in fields) - 2 > width:
            fields.remove(field)
    return fields


def _process_row(process: dict[str, Any]) -> tuple[str, ...]:
    seconds = process["busy_seconds"]
    return (
        process["name"],
        str(process["pid"]),
        str(process["pid_inside"]),
        table.size(process["memory_used_bytes"]),
        "-" if seconds is None else f"{seconds:.1f} s",
        process["command"],
    )


def _watch(arguments: argparse.Namespace, settings: Config) -> int:
    """Show the table until q or a signal. Raises VcudaError: no terminal."""
    if not is_usable():
        raise VcudaError("shows nothing without a terminal", "vcuda ps --watch", "leave it out")
    try:
        with Terminal() as terminal:
            while _show(terminal, arguments, settings):
                pass
    except Ended as end:
        end_by(end.number)
    return 0


def _show(terminal: Terminal, arguments: argparse.Namespace, settings: Config) -> bool:
    """Show one sample until the next is due; False: the user ends it. Raises Ended."""
    listing, due = Listing(settings, arguments), time.monotonic() + WATCH_SECONDS
    while True:
        width, height = terminal.size()
        when = time.strftime("%H:%M:%S")
        lines = [*_table(listing, arguments, width), *map(table.printable, listing.errors)]
        lines = [f"vcuda ps  {when}  every {WATCH_SECONDS:g} s, q quits", *lines][:height]
        terminal.show([line[:width] for line in lines])
        key = terminal.key(due)
        if key is None:
            return True
        if key in ("q", "Q"):
            return False
