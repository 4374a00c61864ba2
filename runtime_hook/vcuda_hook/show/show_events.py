"""``vcuda events``: show the events of allocations and GPUs."""

from __future__ import annotations

import argparse
import json
import signal
import sys
import time
from collections.abc import Iterator
from typing import Any

from vcuda_oci.ledger import events
from vcuda_oci.ledger.event_reader import Reader
from vcuda_oci.model.errors import VcudaError
from vcuda_oci.system.settings_file import Config

from ..live import views
from ..names import container_names, engine_files
from ..text import table

FOLLOW_SECONDS = 0.2
_HEADINGS = ("TIME", "EVENT", "CONTAINER", "BY", "WHAT")
# Minimum widths, for later lines of --follow; the container's name is not limited.
_WIDTHS = (19, 13, 12, 23, 0)
_COLOURS = {
    events.REFUSED: "red",
    events.GPU_UNHEALTHY: "red",
    events.SUSPEND_FAILED: "red",
    events.LOST: "red",
    events.CLAIMED: "green",
    events.GPU_HEALTHY: "green",
    events.GPU_DRAINED: "yellow",
    events.GPU_UNDRAINED: "green",
    events.LIMIT_CHANGED: "yellow",
    events.SUSPENDED: "yellow",
    events.RESUMED: "green",
}


class Concerned:
    """Selects the events for `name`: an allocation's or container's id or its first characters, a
    container's name, or a pod's name, with namespace and container or without; "": all.
    """

    def __init__(self, name: str) -> None:
        self._name = name
        self._ids: set[str] = set()
        self._engines: dict[str, dict[str, str]] = {}
        # The name of each allocation, and what each name or id has stood for.
        self._names: dict[str, str] = {}
        self._ids_of: dict[str, set[str]] = {}

    def among(self, found: list[dict[str, Any]]) -> list[dict[str, Any]]:
        """The selected events, each with "name", the engine's name for the container, if it is
        known and has stood for no other container.
        """
        for event in found:
            engine = event.pop("engine", None)
            if isinstance(engine, dict):
                self._engines[event["allocation"]] = engine
        for event in found:
            id = event["allocation"]
            container = str(event.get("container", ""))
            name = engine_files.described(container, self._engines.get(id, {})).name
            if name:
                self._names[id] = name
            for word in (id, container, name):
                self._ids_of.setdefault(word, set()).add(id)
        # An allocation outlives its containers: all its events concern each of them.
        self._ids |= {event["allocation"] for event in found if self._is_named(event)} - {""}
        chosen = [e for e in found if e["allocation"] in self._ids or self._is_named(e)]
        for event in chosen:
            name = self._names.get(event["allocation"], "")
            if name and len(self._ids_of[name]) == 1:
                event["name"] = name
        return chosen

    def _is_named(self, event: dict[str, Any]) -> bool:
        ids = (event["allocation"], str(event.get("container", "")))
        names = (
            self._names.get(event["allocation"], ""),
            *container_names.forms_of_pod(str(event.get("pod", ""))),
        )
        return self._name in names or any(id.startswith(self._name) for id in ids)


def show_events(arguments: argparse.Namespace, settings: Config) -> int:
    """Print the events; with --follow also new ones, until interrupted.

    Raises VcudaError: this user may not read them, or `name` is unknown.
    """
    path = f"{settings.state_dir}/{events.NAME}"
    concerned, since = Concerned(arguments.name), time.time() - (arguments.since or time.time())
    batches = _batches(Reader(path), path, arguments.follow)
    first = sorted(concerned.among(next(batches)), key=lambda event: event["time"])
    if arguments.name and not first and not arguments.follow:
        raise VcudaError("no event of it", arguments.name, "see 'vcuda events'")
    first = [event for event in first if event["time"] >= since]
    if arguments.follow:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    if arguments.json and not arguments.follow:
        table.print_json(first)
        return 0
    rows = [_row(event) for event in first]
    widths = [
        max(least, *(len(row[at]) for row in (_HEADINGS, *rows)))
        for at, least in enumerate(_WIDTHS)
    ]
    if not arguments.json:
        print(table.coloured(table.line(_HEADINGS, widths), "bold"))
    _print(first, widths, arguments.json)
    for found in batches:
        _print(concerned.among(found), widths, arguments.json)
    return 0


def _batches(reader: Reader, path: str, follow: bool) -> Iterator[list[dict[str, Any]]]:
    while True:
        try:
            yield list(reader.new())
        except OSError as error:
            hint = "run it as root: events name the containers of all"
            raise VcudaError(f"cannot be read: {error.strerror}", path, hint) from error
        if not follow:
            return
        time.sleep(FOLLOW_SECONDS)


def _print(found: list[dict[str, Any]], widths: list[int], as_json: bool) -> None:
    for event in found:
        if as_json:
            print(json.dumps(event))
        else:
            line = table.line(_row(event), widths)
            colour = _COLOURS.get(event["kind"])
            print(table.coloured(line, colour) if colour else line)
    sys.stdout.flush()


def _row(event: dict[str, Any]) -> tuple[str, ...]:
    cells = (
        time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event["time"])),
        event["kind"],
        str(event.get("pod") or event.get("name") or views.short_id(event["allocation"]) or "-"),
        event["from"],
        event["text"],
    )
    return tuple(table.printable(cell) for cell in cells)
